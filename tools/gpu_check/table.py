"""What tools/gpu-check found, all of it as JSON, then as short tables.  table.py OUT

Takes what there is: a part that failed, was cut or never ran is told as that.
"""
import json
import pathlib
import re
import sys


def read_json(path):
    """What the file holds, or None: it may be missing or half written."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def read_lines(path):
    """The JSON objects of a file of lines, and how many lines are none: the last may be cut."""
    found, cut = [], 0
    text = path.read_text(errors="replace") if path.exists() else ""
    for line in filter(str.strip, text.splitlines()):
        try:
            found.append(json.loads(line))
        except ValueError:
            cut += 1
    return [entry for entry in found if isinstance(entry, dict)], cut


def tests_of_report(report):
    """Name, how it ended and the message of each test of a GoogleTest JSON report."""
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            if test.get("status") != "RUN":
                continue
            failures = [f.get("failure", "") for f in test.get("failures", [])]
            ended = "failed" if failures else (
                "skipped" if test.get("result") == "SKIPPED" else "passed")
            yield f"{suite['name']}.{test['name']}", ended, "\n".join(failures)


def tests_of_log(text):
    """The same, of the log of a process that ended before it wrote its report."""
    began = None
    for mark, name in re.findall(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] (\S+?),?(?: .*)?$", text,
                                 re.MULTILINE):
        if mark == "RUN":
            began = name
        elif name == began:
            ended = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[mark]
            began = None
            yield name, ended, ""
    if began:
        yield began, "died", ""


def read_tests(out, parts):
    """What is known of every test, by name, and the processes of them that did not end as they
    should. A test that a part ran again counts as it ended first."""
    tests, ended_early = {}, []
    logs = sorted(out.glob("tests-*.log"), key=lambda p: (p.stem.endswith("-again"), p.stem))
    for log in logs:
        text = log.read_text(errors="replace")
        report = read_json(log.with_suffix(".json"))
        found = list(tests_of_report(report) if report else tests_of_log(text))
        for name, ended, message in found:
            tests.setdefault(name, {"ended": ended, "message": message})
        rc = parts.get(log.stem, {}).get("rc")
        if rc not in (0, 1) or not report:
            last = [name for name, ended, _ in found if ended == "died"]
            ended_early.append({"part": log.stem, "rc": rc, "in": last[0] if last else None,
                                "last_lines": text.splitlines()[-5:]})
    return tests, ended_early


def key(row):
    return row.get("case"), row.get("phase")


def cases(own, peers):
    """Pairs of an own row and the peer's, in the order of the own; one of them may be None."""
    by_key = {key(r): r for r in peers if "value" in r}
    failed = {r["case"]: r for r in peers if "case" in r and "value" not in r}
    for row in own:
        yield row, by_key.pop(key(row), failed.get(row.get("case")))
    told = {r.get("case") for r in own if "value" not in r}  # with the reason there is none
    yield from ((None, peer) for peer in by_key.values() if peer["case"] not in told)


def missing(row):
    return next((f"{how}: {row[how]}" for how in ("failed", "skipped") if how in row), "unreadable")


def number(value, form, end=""):
    return "-" if value is None else format(value, form) + end


def percent(value):
    return number(None if value is None else 100 * value, ".1f", " %")


def milliseconds(row):
    return row["value"] if row["metric"] == "ms" else row.get("extra", {}).get("ms")


TITLES = ("case", "phase", "ms", "TFLOP/s", "MFU", "of", "GB/s", "of bandwidth",
          "floor/own", "PyTorch ms", "ratio", "peak bytes")
FORM = "{:32} {:8} {:>10} {:>9} {:>7} {:3} {:>9} {:>12} {:>9} {:>10} {:>6}  {}"


class Peaks:
    """The rates that shares are of, each with a letter under which it is told below the table."""

    def __init__(self):
        self.letters, self.bandwidths, self.unknown = {}, {}, {}

    def note(self, extra):
        """Of a row: the letter of the peak that its MFU is of, or nothing."""
        if "of_bandwidth" in extra:
            self.bandwidths[extra["bandwidth_name"]] = extra["bandwidth_peak"]
        if "mfu" in extra:
            peak = extra["peak_name"], extra["peak_flops"]
            return self.letters.setdefault(peak, chr(ord("a") + len(self.letters)))
        if "peak_name" in extra:
            self.unknown[f"none is published: {extra['peak_name']}"] = True
        elif "gpu" in extra:
            self.unknown[f"the hardware table has no row for {extra['gpu']}"] = True
        return ""

    def lines(self):
        for (name, flops), letter in self.letters.items():
            yield f"MFU of {letter}: {name}, {flops * 1e-12:.4g} TFLOP/s"
        for name, rate in self.bandwidths.items():
            yield f"of bandwidth: {name}, {rate * 1e-9:.4g} GB/s (GB = 1e9 bytes)"
        for why in self.unknown:
            yield f"no MFU: {why}"


def columns(own, other, peaks):
    """What one case shows: its own row, the peer's, and what they say of each other."""
    name, phase = (own or other).get("case"), (own or other).get("phase", "")
    if own and "value" not in own:
        return f"{name:32} {missing(own)}"
    peer = (other or {}).get("value")
    shown = number(milliseconds(other), ".4g") if peer is not None else (
        "failed" if other else "")
    if own is None:
        return FORM.format(name, phase, "-", "-", "-", "", "-", "-", "-", shown, "-", "not run")
    e, value = own.get("extra", {}), own["value"]
    # How many times the peer's speed: rates divide the one way, times the other.
    ratio = None
    if peer and value:
        ratio = value / peer if own["metric"] == "TFLOP_per_s" else peer / value
    memory = ""
    if "peak_bytes" in e:
        same = ("as predicted" if e["peak_bytes"] == e["predicted_peak_bytes"]
                else f"PREDICTED {e['predicted_peak_bytes']:,}")
        memory = f"{e['peak_bytes']:,} {same}"
    floor = e["floor_ms"] / value if "floor_ms" in e and value else None
    return FORM.format(name, phase, number(milliseconds(own), ".4g"),
                       number(e.get("TFLOP_per_s"), ".4g"), percent(e.get("mfu")), peaks.note(e),
                       number(e.get("GB_per_s"), ".4g"), percent(e.get("of_bandwidth")),
                       number(floor, ".3f"), shown or "-", number(ratio, ".2f"), memory).rstrip()


def count(tests):
    return {how: sum(t["ended"] == how for t in tests.values())
            for how in ("passed", "failed", "died", "skipped")}


def show_tests(tests, ended_early):
    print("\ndevice tests: " + ", ".join(f"{n} {how}" for how, n in count(tests).items()))
    for part in ended_early:
        where = f", in {part['in']}" if part["in"] else ""
        print(f"  {part['part']} did not end: exit {part['rc']}{where}")
    bad = [(name, t) for name, t in tests.items() if t["ended"] in ("failed", "died")]
    for name, test in bad[:20]:
        print(f"  {test['ended']} {name}")
        for line in test["message"].splitlines()[:4]:
            print(f"      {line[:160]}")
    if len(bad) > 20:
        print(f"  and {len(bad) - 20} more")


def grouped(parts):
    """The parts, those of the tests as one: where all ended well, or as the first that did not."""
    result = {}
    for name, part in parts.items():
        whole = result.setdefault("tests" if name.startswith("tests") else name,
                                  {"rc": 0, "seconds": 0})
        whole["seconds"] += part["seconds"]
        whole["rc"] = whole["rc"] or part["rc"]
    return result


def main():
    out = pathlib.Path(sys.argv[1])
    parts = read_json(out / "parts.json") or {}
    tests, ended_early = read_tests(out, parts)
    own, cut = read_lines(out / "tally.jsonl")
    peers, peers_cut = read_lines(out / "torch.jsonl")
    absent = next((r["absent"] for r in peers if "absent" in r), None)
    peers = [r for r in peers if "case" in r]
    own = [r for r in own if "case" in r]
    built = out / "built.txt"
    built = built.read_text().splitlines() if built.exists() else []
    nothing = [what for what, rows in (("tests", tests), ("bench", own)) if not rows and any(
        name.startswith(what) for name in parts)]
    well = bool(parts) and not nothing and not ended_early and not cut and all(
        part["rc"] == 0 for part in parts.values())
    gpus = (out / "gpus.txt").read_text().strip()
    (out / "gpu-check.json").write_text(json.dumps(
        {"gpu": gpus, "well": well, "built": built, "parts": parts, "tests": count(tests),
         "ended_early": ended_early,
         "not_passed": {name: t for name, t in tests.items() if t["ended"] != "passed"},
         "tally": own, "pytorch": peers, "pytorch_absent": absent, "cut_lines": cut + peers_cut},
        indent=1) + "\n")

    print("\nseconds: " + ", ".join(
        f"{name} {part['seconds']:.1f}" + ("" if part["rc"] == 0 else f" (exit {part['rc']})")
        for name, part in grouped(parts).items()))
    if any(name.startswith("tests") for name in parts):
        show_tests(tests, ended_early)
    if own or peers:
        peaks = Peaks()
        print("\n" + FORM.format(*TITLES))
        for row, other in cases(own, peers):
            print(columns(row, other, peaks))
        for line in peaks.lines():
            print(line)
    for row in peers:
        if "value" not in row:
            print(f"PyTorch: {row['case']} {missing(row)}")
    if absent:
        print(f"PyTorch was not timed: {absent}")
    if cut + peers_cut:
        print(f"{cut + peers_cut} lines were cut")
    for what in nothing:
        print(f"{what}: nothing ran")
    print(f"{'well' if well else 'NOT WELL'}; all of it: {out / 'gpu-check.json'}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
