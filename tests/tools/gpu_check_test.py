"""tools/gpu-check with stand-ins for programs: that pass, fail, die, hang and are cut.

  gpu_check_test.py [BIN]    BIN: the folder of the programs on the simulated device
"""
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'
BIN = None

# One test a shard. What happens in it is filled in.
TESTS = '''#!/bin/sh
for flag in "$@"; do case $flag in --gtest_output=json:*) json=${flag#*json:} ;; esac; done
i=$GTEST_SHARD_INDEX
case="{\\"name\\": \\"Case$i\\", \\"status\\": \\"RUN\\", \\"result\\": \\"COMPLETED\\""
write() {
  printf '%%s\n' "{\\"testsuites\\": [{\\"name\\": \\"Ops\\", \\"testsuite\\": [$1]}]}" >"$json"
}
echo "[ RUN      ] Ops.Before$i"
echo "[       OK ] Ops.Before$i (0 ms)"
echo "[ RUN      ] Ops.Case$i"
%s
echo "[       OK ] Ops.Case$i (1 ms)"
write "$case}"
'''
FAILS = '''if [ $i = 2 ]; then
  echo "[  FAILED  ] Ops.Case$i (1 ms)"
  write "$case, \\"failures\\": [{\\"failure\\": \\"rope_test.cc:7\\nis off by 3 units\\"}]}"
  exit 1
fi'''
DIES = '''if [ $i = 3 ]; then
  [ -z "$CUDA_LAUNCH_BLOCKING" ] || echo "launch of rope: misaligned address"
  echo "cudaSetDevice: misaligned address"
  kill -ABRT $$
fi'''
HANGS = '[ $i != 1 ] || sleep 60'

BENCH = '''#!/bin/sh
row() { echo "{\\"case\\": \\"gpu.$1\\", $2}"; }
row gemm.8192.f32 \\
  '"phase": "forward", "metric": "TFLOP_per_s", "value": 40.0, "extra": {"ms": 27.5,
  "TFLOP_per_s": 40.0, "GB_per_s": 29.3, "gpu": "X", "peak_name": "GPU X, f32, dense",
  "peak_flops": 50e12, "mfu": 0.8, "bandwidth_name": "GPU X", "bandwidth_peak": 2e12,
  "of_bandwidth": 0.01465}' | tr -d '\\n' && echo
row gemm.8192.fp8 '"skipped": "this GPU multiplies no f8e4m3fn"'
%s
row step.gpt2.f32 '"phase": "step", "metric": "ms", "value": 50.0,
  "extra": {"ms": 50.0, "TFLOP_per_s": 30.0, "GB_per_s": 700.0, "gpu": "X",
  "peak_name": "GPU X, tf32, dense", "peak_flops": 120e12, "mfu": 0.25, "floor_ms": 40.0,
  "peak_bytes": 7, "predicted_peak_bytes": 7}' | tr -d '\\n' && echo
%s
'''
FAILS_A_CASE = '''row adamw.f32 '"failed": "out of memory"' '''
CUT = '''printf '{"case": "gpu.step.gpt2-xl.bf16", "pha'; exec sleep 60'''

# Twice as fast as the stand-in above, and one more case.
PEER = '''import json
for case, metric, value in (("gpu.gemm.8192.f32", "TFLOP_per_s", 80.0),
                            ("gpu.adamw.f32", "ms", 2.0), ("gpu.step.gpt2-xl.bf16", "ms", 9.0)):
    phase = "forward" if "gemm" in case else "step"
    print(json.dumps({"case": case, "phase": phase, "metric": metric, "value": value,
                      "extra": {"ms": 13.75} if metric != "ms" else {}}))
print('{"case": "gpu.step.gpt2.f32", "failed": "OutOfMemoryError: of CUDA"}')
'''
NO_PEER = 'print(\'{"absent": "ModuleNotFoundError: No module named torch"}\')\n'


def gpu_check(least_limit=None):
    """The script's text; with a least limit, that in place of its own, so that tests are quick."""
    text = (TOOLS / 'gpu-check').read_text()
    if least_limit is None:
        return text
    quick = text.replace('least_limit=60 ', f'least_limit={least_limit} ')
    assert quick != text
    return quick


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class WithStandIns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = pathlib.Path(folder.name)
        program(self.at / 'path' / 'nvidia-smi', '#!/bin/sh\necho "GPU 0: Stand-in"\n')
        self.env = dict(os.environ, PATH=f"{self.at / 'path'}:{os.environ['PATH']}",
                        OMP_WAIT_POLICY='passive')

    def packed(self, tests=TESTS % '', bench=BENCH % ('', ''), peer=NO_PEER, least_limit=None):
        """A folder as --pack makes it."""
        pack = self.at / 'pack'
        shutil.rmtree(pack, ignore_errors=True)
        program(pack / 'bin' / 'cuda_tests', tests)
        program(pack / 'bin' / 'tally-bench', bench)
        program(pack / 'gpu-check', gpu_check(least_limit))
        shutil.copytree(TOOLS / 'gpu_check', pack / 'gpu_check')
        (pack / 'gpu_check' / 'torch_bench.py').write_text(peer)
        (pack / 'packed.txt').write_text('commit 0123\n')
        return pack

    def run_it(self, *flags, script=None, **kwargs):
        return subprocess.run([script or self.at / 'pack' / 'gpu-check', *flags], env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, **kwargs)

    def found(self, folder='pack/out'):
        return json.loads((self.at / folder / 'gpu-check.json').read_text())


class GpuCheck(WithStandIns):
    def test_all_is_well(self):
        self.packed()
        ran = self.run_it()
        self.assertEqual(ran.returncode, 0, ran.stdout)
        found = self.found()
        self.assertEqual(found['tests'], {'passed': 8, 'failed': 0, 'died': 0, 'skipped': 0})
        self.assertEqual(list(found['parts']),
                         [f'tests-{i}' for i in range(1, 9)] + ['bench', 'torch'])
        self.assertEqual({part['rc'] for part in found['parts'].values()}, {0})
        self.assertEqual((found['well'], found['gpu'], found['built']),
                         (True, 'GPU 0: Stand-in', ['commit 0123']))
        for line in (r'8 passed, 0 failed',
                     r'case +phase +ms +TFLOP/s +MFU of +GB/s +of bandwidth +floor/own +PyTorch',
                     r'gpu\.gemm\.8192\.f32 +forward +27\.5 +40 +80\.0 % a +29\.3 +1\.5 %( +-)+\n',
                     r'MFU of a: GPU X, f32, dense, 50 TFLOP/s\n',
                     r'MFU of b: GPU X, tf32, dense, 120 TFLOP/s\n',
                     r'of bandwidth: GPU X, 2000 GB/s',
                     r'gpu\.gemm\.8192\.fp8 +skipped: this GPU multiplies no',
                     r'gpu\.step\.gpt2\.f32 +step +50 +30 +25\.0 % b +700 +- +0\.800 .* 7 as pre',
                     r'PyTorch was not timed: ModuleNotFoundError'):
            self.assertRegex(ran.stdout, line)

    def test_tells_what_failed_and_goes_on(self):
        self.packed(TESTS % FAILS, BENCH % (FAILS_A_CASE, 'exit 5'), PEER)
        ran = self.run_it(f"--out={self.at / 'else where'}")
        self.assertEqual(ran.returncode, 1, ran.stdout)
        found = self.found('else where')
        self.assertEqual((found['tests']['passed'], found['tests']['failed']), (7, 1))
        self.assertIn('off by 3 units', found['not_passed']['Ops.Case2']['message'])
        self.assertEqual((found['parts']['tests-3']['rc'], found['parts']['bench']['rc']), (1, 5))
        self.assertEqual(found['ended_early'], [])
        for line in (r'failed Ops\.Case2\n +rope_test\.cc:7\n +is off by 3 units',
                     r'gpu\.gemm\.8192\.f32 .* 13\.75 +0\.50\n',
                     r'gpu\.adamw\.f32 +failed: out of memory\n',
                     r'gpu\.step\.gpt2\.f32 .* failed ',
                     r'gpu\.step\.gpt2-xl\.bf16 +step +- +- +- +- +- +- +9 +- +not run',
                     r'PyTorch: gpu\.step\.gpt2\.f32 failed: OutOfMemoryError'):
            self.assertRegex(ran.stdout, line)

    def test_a_fault_costs_one_part_which_runs_once_more(self):
        self.packed(TESTS % DIES)
        ran = self.run_it('--tests-only')
        self.assertEqual(ran.returncode, 1, ran.stdout)
        found = self.found()
        self.assertEqual(list(found['parts'])[-2:], ['tests-8', 'tests-4-again'])
        self.assertEqual(found['tests'], {'passed': 8, 'failed': 0, 'died': 1, 'skipped': 0})
        self.assertEqual([(e['part'], e['rc'], e['in']) for e in found['ended_early']],
                         [('tests-4', 134, 'Ops.Case3'), ('tests-4-again', 134, 'Ops.Case3')])
        self.assertRegex(ran.stdout, r'tests-4 ended with 134 in: \[ RUN +\] Ops\.Case3\n')
        self.assertIn('launch of rope: misaligned address', ran.stdout)

    def test_keeps_to_its_limit_and_tells_what_was_cut(self):
        self.packed(TESTS % HANGS, BENCH % ('', CUT), least_limit=21)
        began = time.monotonic()
        ran = self.run_it('--limit=21')
        self.assertLess(time.monotonic() - began, 21)
        self.assertEqual(ran.returncode, 1, ran.stdout)
        found = self.found()
        self.assertEqual([found['parts'][name]['rc'] for name in ('tests-1', 'tests-2', 'bench')],
                         [0, 124, 124])
        self.assertEqual(found['not_passed']['Ops.Case1']['ended'], 'died')
        self.assertEqual([r['case'] for r in found['tally']],
                         ['gpu.gemm.8192.f32', 'gpu.gemm.8192.fp8', 'gpu.step.gpt2.f32'])
        self.assertEqual(found['cut_lines'], 1)
        self.assertIn('bench was cut after', ran.stdout)

    def test_tells_what_it_has_when_it_is_ended(self):
        self.packed(TESTS % HANGS)
        with subprocess.Popen([self.at / 'pack' / 'gpu-check'], env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ran:
            log = self.at / 'pack' / 'out' / 'tests-2.log'
            while not (log.exists() and 'RUN      ] Ops.Case1' in log.read_text()):
                time.sleep(0.05)
            ran.send_signal(signal.SIGTERM)
            text = ran.communicate(timeout=20)[0]
        self.assertEqual(ran.returncode, 143, text)
        self.assertIn('2 passed, 0 failed, 1 died', text)
        self.assertEqual(self.found()['parts'].keys(), {'tests-1'})

    def test_nothing_that_ran_is_not_well(self):
        silent = '#!/bin/sh\nexit 0\n'
        self.packed(silent, silent)
        ran = self.run_it()
        self.assertEqual(ran.returncode, 1, ran.stdout)
        self.assertIn('tests: nothing ran', ran.stdout)
        self.assertIn('bench: nothing ran', ran.stdout)

    def test_programs_find_their_libraries_and_those_of_a_python_environment(self):
        cublas = self.at / 'site' / 'nvidia' / 'cu13' / 'lib'
        cublas.mkdir(parents=True)
        (cublas / 'libcublasLt.so.13').touch()
        (self.at / 'site' / 'nvidia' / 'cudnn' / 'lib').mkdir(parents=True)
        self.env['PYTHONPATH'] = str(self.at / 'site')
        for own, expected in ((None, 'LIB:CUBLAS'), ('/opt/mine', 'LIB:/opt/mine:CUBLAS')):
            pack = self.packed(bench=f'#!/bin/sh\necho "$LD_LIBRARY_PATH" >{self.at}/path.txt\n')
            self.env.pop('LD_LIBRARY_PATH', None)
            if own:
                self.env['LD_LIBRARY_PATH'] = own
            self.run_it('--bench-only')
            self.assertEqual((self.at / 'path.txt').read_text().strip(),
                             expected.replace('LIB', str(pack / 'lib'), 1)
                             .replace('CUBLAS', str(cublas)))

    def test_refuses_what_it_cannot_do(self):
        self.packed()
        empty = self.at / 'empty'
        empty.mkdir()
        for flags, code, why in (
                *(([f'--limit={limit}'], 2, f'--limit={limit}: wanted seconds, 60 to 3600;')
                  for limit in ('', '7', '-9', '59', '3601', '99999', '0x80', '080', '90s')),
                (['--tests-only', '--bench-only'], 2, 'nothing to do'),
                (['--speed'], 2, 'gpu-check: --speed: no such flag; --help lists the flags\n'),
                (['--speed=9', '--help'], 2, '--speed=9: no such flag'),
                (['-x'], 2, '-x: no such flag'),
                (['x'], 2, "'x': takes flags only"), ([''], 2, "'': takes flags only"),
                *(([flag], 2, f'{flag}: wants a value, as in {flag.rstrip("=")}=VALUE;')
                  for name in ('out', 'pack', 'prebuilt', 'arch')
                  for flag in (f'--{name}', f'--{name}=')),
                (['--limit', '90'], 2, '--limit: wants a value'),
                (['--tests-only=1'], 2, '--tests-only takes no value'),
                (['--arch=90'], 2, 'is of --pack'), (['--pack=x'], 2, '--prebuilt does not'),
                ([f'--prebuilt={empty}'], 2, 'no bin/cuda_tests')):
            with self.subTest(flags=flags):
                ran = self.run_it(*flags)
                self.assertEqual(ran.returncode, code, ran.stdout)
                self.assertIn(why, ran.stdout)
        for flags, why in (([f'--pack={self.at}'], 'holds other things'),
                           (['--pack=x', '--arch=sm_90'], 'without the point')):
            ran = self.run_it(*flags, script=TOOLS / 'gpu-check')
            self.assertEqual((ran.returncode, why in ran.stdout), (2, True), ran.stdout)
        program(self.at / 'path' / 'nvidia-smi', '#!/bin/sh\nexit 9\n')
        ran = self.run_it()
        self.assertEqual(ran.returncode, 3, ran.stdout)
        self.assertIn('no NVIDIA GPU', ran.stdout)


    def test_help_tells_every_flag(self):
        for flag in ('--help', '-h'):
            ran = subprocess.run([TOOLS / 'gpu-check', flag], env=self.env, capture_output=True,
                                 text=True, timeout=60)
            self.assertEqual((ran.returncode, ran.stderr), (0, ''))
            parser = gpu_check().split('case "$arg" in')[1].split('esac')[0]
            taken = set(re.findall(r'^ {4}(--[a-z-]+)', parser, re.MULTILINE))
            self.assertEqual(len(taken), 8)
            self.assertEqual(set(re.findall(r'^  (--[a-z-]+)', ran.stdout, re.MULTILINE)), taken)
            self.assertIn('60 to 3600 (default 480)', ran.stdout)
            self.assertIn('3 without a GPU', ran.stdout)


# Builds nothing, or what it is told to copy.
CMAKE = '''#!/bin/sh
echo "$@" >>asked
[ "$1" = --build ] || exit 0
mkdir -p build/cuda/bin
echo "TALLY_CUDA_ARCHITECTURES:STRING=80-real;90-real" >build/cuda/CMakeCache.txt
cp %s build/cuda/bin/cuda_tests
cp %s build/cuda/bin/tally-bench
%s
'''


class FromACheckout(WithStandIns):
    """Where it builds: with stand-ins for CMake and tools/setup."""

    def setUp(self):
        super().setUp()
        self.script = self.at / 'checkout' / 'tools' / 'gpu-check'
        program(self.script, gpu_check(least_limit=18))
        program(self.script.with_name('setup'), '#!/bin/sh\nexit 0\n')
        shutil.copytree(TOOLS / 'gpu_check', self.script.with_name('gpu_check'))
        program(self.at / 'path' / 'nvidia-smi',
                '#!/bin/sh\n[ "$1" = -L ] && echo "GPU 0: Stand-in" || echo 9.0\n')

    def cmake(self, after, tests='', bench=''):
        program(self.at / 'path' / 'cmake', CMAKE % (tests, bench, after))

    def test_builds_for_this_gpu_and_runs_what_it_built(self):
        program(self.at / 'tests', TESTS % '')
        program(self.at / 'bench', BENCH % ('', ''))
        self.cmake('', self.at / 'tests', self.at / 'bench')
        ran = self.run_it('--tests-only', script=self.script)
        self.assertEqual(ran.returncode, 0, ran.stdout)
        asked = (self.at / 'checkout' / 'asked').read_text()
        for option in ('-DTALLY_CUDA_ARCHITECTURES=90-real', '-DTALLY_WERROR=OFF'):
            self.assertIn(option, asked)
        parts = self.found('checkout/build/gpu-check')['parts']
        self.assertEqual(list(parts)[:4], ['setup', 'configure', 'build', 'tests-1'])

    def test_tells_why_nothing_could_be_built(self):
        for after, code, why in (('echo "FAILED: rope.cu.o" >&2; exit 1', 1, 'FAILED: rope.cu.o'),
                                 ('sleep 60', 124, 'the next run goes on from there')):
            self.cmake(after, '-r .', '-r .')
            ran = self.run_it('--limit=18', script=self.script)
            self.assertEqual(ran.returncode, 1, ran.stdout)
            self.assertIn(why, ran.stdout)
            self.assertIn('NOT WELL', ran.stdout)
            parts = self.found('checkout/build/gpu-check')['parts']
            self.assertEqual({name: part['rc'] for name, part in parts.items()},
                             {'setup': 0, 'configure': 0, 'build': code})
        program(self.script.with_name('setup'), '#!/bin/sh\nexit 1\n')
        ran = self.run_it(script=self.script)
        self.assertEqual(ran.returncode, 1, ran.stdout)
        self.assertEqual(self.found('checkout/build/gpu-check')['parts']['setup']['rc'], 1)

    def test_packs_programs_with_their_libraries(self):
        ls = shutil.which('ls')  # a program with libraries, though it checks no GPU
        self.cmake('', ls, ls)
        pack = self.at / 'pack'
        for _ in range(2):  # a second time over the first
            ran = self.run_it(f'--pack={pack}', '--arch=80,90', script=self.script)
            self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn('-DTALLY_CUDA_ARCHITECTURES=80-real;90-real',
                      (self.at / 'checkout' / 'asked').read_text())
        self.assertRegex((pack / 'packed.txt').read_text(),
                         r'commit .*\narchitectures 80-real;90-real\nlibc GLIBC_2\.\d+ or newer')
        libraries = {path.name.split('.so')[0] for path in (pack / 'lib').iterdir()}
        self.assertFalse(libraries & {'libc', 'libm', 'ld-linux-x86-64', 'ld-linux-aarch64'})
        moved = pack.rename(self.at / 'moved')
        ran = self.run_it('--tests-only', script=moved / 'gpu-check')
        self.assertIn("unrecognized option '--gtest_color=no'", ran.stdout)
        self.assertTrue((moved / 'out' / 'gpu-check.json').exists())


@unittest.skipIf(len(sys.argv) < 2, 'needs the folder of the programs')
class WithThePrograms(WithStandIns):
    """The real programs, on the simulated device: what they print is what is read."""

    def test_reads_what_the_programs_print(self):
        self.env['GTEST_FILTER'] = '*OnGpu.*:*Rope*'
        self.packed(f'#!/bin/sh\nexec {BIN}/cuda_on_sim_tests "$@"\n',
                    '#!/bin/sh\nfor flag; do shift; case $flag in --seconds=*) ;; '
                    '*) set -- "$@" "$flag" ;; esac; done\n'
                    f'exec {BIN}/tally-bench-sim "$@" --small --seconds=0.01 '
                    "--case='gpu.gemm.*|gpu.step.gpt2.f32'\n")
        ran = self.run_it()
        self.assertEqual(ran.returncode, 0, ran.stdout)
        found = self.found()
        self.assertGreater(found['tests']['passed'], 2)
        self.assertEqual(len(found['tally']), 6)
        self.assertRegex(ran.stdout, r'gpu\.step\.gpt2\.f32 +step .*as predicted')
        self.assertIn('no MFU: the hardware table has no row for Simulated GPU\n', ran.stdout)

    def test_every_row_tells_time_and_rates_of_what_it_did(self):
        def rows(*flags):
            ran = subprocess.run([f'{BIN}/tally-bench-sim', '--device=cuda', '--small',
                                  '--seconds=0.01', *flags],
                                 env=self.env, capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            return ran.stdout.splitlines()
        found = {(r['case'], r['phase']): r for r in map(json.loads, rows('--json'))}
        self.assertEqual(len(found), 16)
        for row in found.values():
            with self.subTest(case=row['case'], phase=row['phase']):
                e = row['extra']
                self.assertAlmostEqual(e['TFLOP_per_s'] * e['ms'] * 1e9, e['flops'], delta=1e-3)
                self.assertAlmostEqual(e['GB_per_s'] * e['ms'] * 1e6, e['bytes'], delta=1e-3)
                self.assertGreater(min(e['ms'], e['flops'], e['bytes']), 0)
                self.assertEqual(e['gpu'], 'Simulated GPU')
                # No share without what it is of.
                self.assertFalse({'mfu', 'peak_name', 'of_bandwidth'} & e.keys())
        # 2 n^3, and each matrix once: products of f8 are of bf16.
        for dtype, nbytes in (('f32', 4 + 4 + 4), ('bf16', 2 + 2 + 2), ('fp8', 1 + 1 + 2)):
            e = found[f'gpu.gemm.32.{dtype}', 'forward']['extra']
            self.assertEqual((e['flops'], e['bytes']), (2 * 32**3, nbytes * 32**2))
        # Two products forward and four backward of 2 heads of 16, over the pairs of a causal mask.
        product = 2 * 2 * 16 * sum(range(1, 33))
        for phase, products in (('forward', 2), ('both', 2 + 4)):
            e = found['gpu.attention.T32.causal.bf16', phase]['extra']
            self.assertEqual(e['flops'], products * product)
        # Reads p, g, m and v and writes p, m and v, 1,000 of f32 each.
        self.assertAlmostEqual(found['gpu.adamw.f32', 'step']['extra']['bytes'], 7 * 4000, delta=16)
        # A step's memory is its own, in whole segments of 2 MiB, whatever ran before it.
        alone, = map(json.loads, rows('--json', '--case=gpu.step.gpt2.bf16'))
        for row in (alone, found['gpu.step.gpt2.bf16', 'step']):
            reserved = row['extra']['reserved_after_steps_bytes']
            self.assertGreaterEqual(reserved, row['extra']['peak_bytes'])
            self.assertEqual(reserved % (2 << 20), 0)
            self.assertEqual(reserved, alone['extra']['reserved_after_steps_bytes'])
        text = rows('--case=gpu.gemm.*|gpu.adamw.*')
        self.assertEqual(len(text), 6)
        for row in text:
            self.assertRegex(row, r' [\d.]+ [mu]?s, [\d.]+ [kMG]FLOP/s, [\d.]+ GB/s; no MFU: ')

    def test_exits_as_its_help_says(self):
        for flags, code in ((['--help'], 0), (['--case=none'], 2), (['--device=cuda:63'], 3)):
            ran = subprocess.run([f'{BIN}/tally-bench-sim', *flags], env=self.env,
                                 capture_output=True, text=True, timeout=60)
            self.assertEqual((ran.returncode, bool(ran.stderr)), (code, code > 0), ran.stderr)
            if code == 0:
                self.assertEqual(re.findall(r'^  (\d)  \w', ran.stdout, re.MULTILINE), [*'0235'])

    def test_a_case_that_fails_is_told_and_the_next_is_run(self):
        # Two cases that draw hundreds of MB, where beside the simulated device's 16 TB of addresses
        # few are left.
        limit = (16 << 30) + (400 << 10)
        for json_flag in ('', '--json'):
            ran = subprocess.run(
                ['bash', '-c', f'ulimit -v {limit}; exec "$0" "$@"', f'{BIN}/tally-bench-sim',
                 '--device=cuda', '--case=gpu.(layer_norm|adamw).f32', *filter(None, [json_flag])],
                env=dict(self.env, OPENBLAS_NUM_THREADS='1', OMP_NUM_THREADS='1'),
                capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 5, ran.stderr)
            self.assertIn('2 cases failed', ran.stderr)
            if json_flag:
                rows = [json.loads(line) for line in ran.stdout.splitlines()]
                self.assertEqual([r['case'] for r in rows], ['gpu.layer_norm.f32', 'gpu.adamw.f32'])
                self.assertTrue(all(r['failed'] for r in rows))
            else:
                self.assertRegex(ran.stdout, r'(?s)gpu\.layer_norm\.f32 +failed: .+\n'
                                             r'gpu\.adamw\.f32 +failed: .+\n')


if __name__ == '__main__':
    BIN = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith('-') else None
    unittest.main()
