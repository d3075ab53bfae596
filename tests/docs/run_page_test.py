"""Pages that run_page.py must accept, and faults that it must find."""
import argparse
import os
import tempfile
import unittest

import run_page

PAGE = '''# Page

## 1. Counting to 3

Three is 3, a thousand 1,000.0; a half is 0.5 and `f16` or 2N are no figures, nor are `2·B` and
`--seq=77`, nor [this](https://example.org/2104.1), section 1.

```sh
$ printf 'one\\ntwo\\n'; expr 1 + 2
$ echo 1000 \\
  0.50
```
```text
one
...
1000 0.50
```
'''


class RunPage(unittest.TestCase):
    def failures(self, page):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'page.md')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(page)
            options = argparse.Namespace(bin=folder, programs=folder)
            return run_page.Page(path, options).check()

    def test_accepts_a_page_that_tells_the_truth(self):
        self.assertEqual(self.failures(PAGE.replace('...\n', 'two\n3\n')), [])

    def test_asks_for_shown_figures(self):
        # The 3 of the output is left out.
        self.assertRegex('\n'.join(self.failures(PAGE)), 'page.md:5: 3 is in no block')

    def test_finds_faults(self):
        true = PAGE.replace('...\n', 'two\n3\n')
        for old, new, fault in (
                ('one\ntwo', 'one\ntoo', "not printed, or not here: 'too'"),
                ('1000 0.50\n```', '1000 0.50\nthree\n```', "'three'"),
                ('two\n3\n', 'two\n', 'not printed, or not here'),
                ('1000 0.50\n', '', 'more is printed than is shown'),
                ('a thousand 1,000.0', 'a thousand 1,001', '1,001 is in no block'),
                ('section 1', 'section 2', 'there is no section 2'),
                ('`2·B`', '`256·B`', '256 is in no block'),
                ('$ echo', '$ exit 3; echo', 'exit 3 of'),
                ('$ echo', 'echo', 'is no command'),
                ('```sh', '```cpp', 'it is no file of'),
                ('```sh', '```rust', "'rust'"),
                ('```text', '```\n\n```text\n```\n```sh', 'block of kind')):
            with self.subTest(fault=fault):
                self.assertIn(old, true)
                self.assertIn(fault, '\n'.join(self.failures(true.replace(old, new, 1))))

    def test_matches_excerpts_in_order(self):
        printed = ['a', 'b', 'c', 'd']
        for shown in (['a', 'b', 'c', 'd'], ['...', 'd'], ['a', '...'], ['...', 'b', '...'],
                      ['a', '...', 'c', '...'], ['...']):
            self.assertIsNone(run_page.mismatch(shown, printed), shown)
        for shown in (['a'], ['b', '...'], ['...', 'c'], ['...', 'd', '...', 'a', '...'],
                      ['a', '...', 'a', '...']):
            self.assertIsNotNone(run_page.mismatch(shown, printed), shown)


if __name__ == '__main__':
    unittest.main()
