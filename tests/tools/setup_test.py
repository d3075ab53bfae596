"""tools/setup where every library is missing and apt-get is a stand-in."""
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

SETUP = pathlib.Path(__file__).resolve().parents[2] / 'tools' / 'setup'


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Setup(unittest.TestCase):
    def run_it(self, apt_get, *flags):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            program(path / 'dpkg-query', '#!/bin/sh\nexit 1\n')
            program(path / 'sudo', '#!/bin/sh\nexec "$@"\n')
            program(path / 'apt-get', f'#!/bin/sh\necho "$@" >>{path}/asked\n{apt_get}\n')
            ran = subprocess.run([SETUP, *flags], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env=dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"))
            asked = path / 'asked'
            return ran.returncode, ran.stdout, asked.read_text() if asked.exists() else ''

    def test_installs_what_is_missing(self):
        code, text, asked = self.run_it('exit 0')
        self.assertEqual(code, 0, text)
        self.assertIn('libhwy-dev', asked)
        self.assertIn('libdnnl-dev', asked)
        self.assertNotIn('libdnnl-dev', self.run_it('exit 0', '--required')[2])

    def test_says_what_is_missing_where_nothing_can_be_fetched(self):
        code, text, _ = self.run_it('exit 100')
        self.assertEqual(code, 1)
        self.assertIn('needs the network', text)
        self.assertIn('apt-get install libabsl-dev', text)

    def test_does_without_what_is_optional(self):
        code, text, _ = self.run_it('case "$*" in *libdnnl*) exit 100 ;; esac')
        self.assertEqual(code, 0, text)
        self.assertIn('left out', text)

    def test_waits_no_longer_than_it_may(self):
        began = time.monotonic()
        code, text, _ = self.run_it('exec sleep 60', '--seconds=1')
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(code, 1, text)
        self.assertIn('could not install', text)

    def test_refuses_bad_flags(self):
        for flag in ('--seconds=0', '--seconds=soon', '--all'):
            self.assertEqual(self.run_it('exit 0', flag)[0], 2)


if __name__ == '__main__':
    unittest.main()
