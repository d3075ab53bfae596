"""The short table at the end of tools/gpu-check, and all of it as JSON.  table.py OUT"""
import json
import pathlib
import sys


def lines(path):
    return [json.loads(text) for text in path.read_text().splitlines() if text.strip()]


def main():
    out = pathlib.Path(sys.argv[1])
    own = lines(out / "tally.jsonl")
    peer = {(r["case"], r["phase"]): r for r in lines(out / "torch.jsonl")}
    gpu = (out / "gpus.txt").read_text().strip()
    (out / "gpu-check.json").write_text(json.dumps(
        {"gpu": gpu, "tally": own, "pytorch": list(peer.values())}, indent=1) + "\n")
    print(f"{'case':32} {'phase':8} {'value':>10} {'unit':12} {'of peak':>8} {'floor/own':>9} "
          f"{'PyTorch':>10} {'ratio':>6}  peak bytes")
    for r in own:
        e, other = r["extra"], peer.get((r["case"], r["phase"]))
        part = e.get("mfu", e.get("of_bandwidth"))
        # How many times the peer's speed: rates divide the one way, times the other.
        ratio = None
        if other:
            ratio = (r["value"] / other["value"] if r["metric"] == "TFLOP_per_s"
                     else other["value"] / r["value"])
        memory = ""
        if "peak_bytes" in e:
            same = "as predicted" if e["peak_bytes"] == e["predicted_peak_bytes"] else (
                f"PREDICTED {e['predicted_peak_bytes']:,}")
            memory = f"{e['peak_bytes']:,} {same}"
        floor = e["floor_ms"] / r["value"] if "floor_ms" in e else None
        print(f"{r['case']:32} {r['phase']:8} {r['value']:10.4g} {r['metric']:12} "
              f"{'' if part is None else f'{100 * part:.1f} %':>8} "
              f"{'' if floor is None else f'{floor:.3f}':>9} "
              f"{'' if other is None else format(other['value'], '.4g'):>10} "
              f"{'' if ratio is None else f'{ratio:.2f}':>6}  {memory}")
    print(f"all of it: {out / 'gpu-check.json'}")


if __name__ == "__main__":
    main()
