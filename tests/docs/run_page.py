"""Runs a page: what it says its commands and programs print, they print.

  run_page.py PAGE.md --bin DIR --programs DIR

In each section (from one '## ' heading to the next) of the page
  ```sh    holds commands, each a line '$ command' ('\\' at its end: it goes on). All commands of a
           page run in one empty folder, with DIR of --bin first in PATH.
  ```cpp   is the whole of a program, tests/docs/NAME.cc, which was built as DIR/docs-NAME.
  ```text  right after one of these is all that it prints, but for lines '...', each of which stands
           for any number of lines left out. A command must succeed.
Every figure in the prose of a section stands in one of its blocks, whatever its commas and zeros
at the end; so no number on the page is without a command that prints it or is given it ('70B' gives
70). Not figures: what touches a letter ('2N', 'f16'), ordinals of headings, 'section 3' where there
is one, targets of links, and in `code` coefficients below 100 and flags.
"""
import argparse
import decimal
import os
import re
import subprocess
import sys
import tempfile

# In prose; in blocks, which are less careful with spaces; in commands, whose commas part numbers.
NUMBER = re.compile(r'(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?(?!\w|[.,]\d)')

PRINTED = re.compile(r'(\d{1,3}(?:,\d{3})+(?!\d)|\d+)(\.\d+)?([eE][-+]?\d+)?')
GIVEN = re.compile(r'\d+(\.\d+)?([eE][-+]?\d+)?')


class Block:
    def __init__(self, kind, line):
        self.kind, self.line, self.lines = kind, line, []


class Section:
    """A heading with its prose, as (line number, text), and its blocks."""

    def __init__(self, line):
        self.line, self.prose, self.blocks = line, [], []


def read_page(text):
    sections, block = [Section(1)], None
    for number, line in enumerate(text.split('\n'), 1):
        fence = re.match(r'```(\w*)$', line)
        if block is not None:
            if line == '```':
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block = Block(fence[1], number)
            sections[-1].blocks.append(block)
        else:
            if line.startswith('## '):
                sections.append(Section(number))
            sections[-1].prose.append((number, line))
    if block is not None:
        raise SystemExit(f'line {block.line}: the block does not end')
    return sections


def commands_of(block):
    commands, open_command = [], False
    for line in block.lines:
        if open_command:
            commands[-1] += '\n' + line
        elif line.startswith('$ '):
            commands.append(line[2:])
        else:
            raise ValueError(f'{line!r} is no command: wanted "$ " first')
        open_command = line.endswith('\\')
    return commands


def run(command, folder, path):
    environment = dict(os.environ, PATH=path + os.pathsep + os.environ.get('PATH', ''),
                       OMP_NUM_THREADS='2', OMP_WAIT_POLICY='passive')
    done = subprocess.run(['bash', '-c', command], cwd=folder, env=environment, timeout=240,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout.decode()


def parts_of(lines):
    """The runs of lines between the lines '...'."""
    parts = [[]]
    for line in lines:
        if line == '...':
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def find(part, lines, start):
    for at in range(start, len(lines) - len(part) + 1):
        if lines[at:at + len(part)] == part:
            return at
    return -1


def mismatch(shown, printed):
    """Why `printed` is not what `shown` stands for; None if it is."""
    parts, at = parts_of(shown), 0
    for i, part in enumerate(parts):
        if not part:
            continue
        if len(parts) > 1 and i == len(parts) - 1:
            found = find(part, printed, max(at, len(printed) - len(part)))
        else:
            found = find(part, printed, at)
        if found < 0 or (i == 0 and found != 0):
            near = next((line for line in part if line not in printed), part[0])
            return f'not printed, or not here: {near!r}'
        at = found + len(part)
    if len(parts) == 1 and len(parts[0]) != len(printed):
        return 'more is printed than is shown; a line "..." leaves lines out'
    return None


def figures(text, pattern=NUMBER):
    for match in pattern.finditer(text):
        yield match[0], decimal.Decimal(match[0].replace(',', '')).normalize()


def figures_of_prose(line):
    line = re.sub(r'<!--.*?-->', ' ', line)
    line = re.sub(r'\]\([^)]*\)', ']', line)
    line = re.sub(r'^#+ \d+\. |[Ss]ection \d+', '', line)
    for code in re.findall(r'`([^`]*)`', line):
        if not code.startswith('--'):
            yield from (f for f in figures(code) if f[1] >= 100 or f[1] % 1 != 0)
    yield from figures(re.sub(r'`[^`]*`', ' ', line))


class Page:
    def __init__(self, path, options):
        self.path, self.options, self.failures = path, options, []
        with open(path, encoding='utf-8') as file:
            self.sections = read_page(file.read())

    def fail(self, line, text):
        self.failures.append(f'{self.path}:{line}: {text}')

    def check(self):
        with tempfile.TemporaryDirectory() as folder:
            for section in self.sections:
                self.check_blocks(section, folder)
                self.check_prose(section)
        return self.failures

    def check_blocks(self, section, folder):
        blocks = section.blocks
        for i, block in enumerate(blocks):
            shown = blocks[i + 1] if i + 1 < len(blocks) and blocks[i + 1].kind == 'text' else None
            if block.kind == 'text':
                if i == 0 or blocks[i - 1].kind not in ('sh', 'cpp'):
                    self.fail(block.line, 'output without a command or a program before it')
                continue
            try:
                commands = {'sh': commands_of, 'cpp': self.program}[block.kind](block)
            except (KeyError, ValueError) as error:
                self.fail(block.line, f'block of kind {block.kind!r}: {error}')
                continue
            printed = ''
            for command in commands:
                code, output = run(command, folder, self.options.bin)
                printed += output
                if code != 0:
                    self.fail(block.line, f'exit {code} of: {command}\n{output}')
            if shown is None:
                self.fail(block.line, 'no output is shown for it')
                continue
            why = mismatch(shown.lines, printed.rstrip('\n').split('\n'))
            if why is not None:
                self.fail(shown.line, f'{why}; it prints\n{printed}')

    def program(self, block):
        """The command that runs the program in the block."""
        text = '\n'.join(block.lines) + '\n'
        for name in sorted(os.listdir(self.options.programs)):
            if name.endswith('.cc'):
                with open(os.path.join(self.options.programs, name), encoding='utf-8') as file:
                    if file.read() == text:
                        return ['docs-' + name[:-3]]
        raise ValueError(f'it is no file of {self.options.programs}')

    def check_prose(self, section):
        known = {value for block in section.blocks for line in block.lines
                 for _, value in figures(line, GIVEN if block.kind == 'sh' else PRINTED)}
        headings = {line.split('.')[0] for s in self.sections for _, line in s.prose[:1]}
        for number, line in section.prose:
            for ordinal in re.findall(r'[Ss]ection (\d+)', line):
                if f'## {ordinal}' not in headings:
                    self.fail(number, f'there is no section {ordinal}')
            for text, value in figures_of_prose(line):
                if value not in known:
                    self.fail(number, f'{text} is in no block of its section')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('page')
    parser.add_argument('--bin', required=True)
    parser.add_argument('--programs', required=True)
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    failures = Page(options.page, options).check()
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == '__main__':
    sys.exit(main())
