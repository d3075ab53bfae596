"""verify_proof_mutations.py VERIFY_PROOF GRAPH PROOF: the pair must pass, and must fail after any one change.

Changes one thing at a time: deletes each entry of each list of the proof, alters each integer and each
truth value in it, and deletes or alters each contraction node and each parameter of the graph.
"""
import copy
import importlib.util
import json
import os
import sys


def load(path):
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("verify_proof", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walk(value, path=()):
    """Parent, key and path of everything in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(pairs):
        yield value, key, path + (key,)
        yield from walk(child, path + (key,))


def proof_changes(proof):
    """Changes `proof` in place, and back after each step."""
    for parent, key, path in list(walk(proof)):
        value = parent[key]
        if isinstance(key, int):
            del parent[key]
            yield f"proof without {path}"
            parent.insert(key, value)
        if isinstance(value, (bool, int)):
            parent[key] = not value if isinstance(value, bool) else value + 1
            yield f"proof with another {path}"
            parent[key] = value


def graph_changes(graph):
    for n, node in enumerate(graph["nodes"]):
        if node.get("kind") == "view" or node["cost"]["matmul"] == 0:
            continue
        for what in ("deleted", "cost", "shape", "phase", "serves", "op"):
            changed = copy.deepcopy(graph)
            other = changed["nodes"][n]
            if what == "deleted":
                del changed["nodes"][n]
            elif what == "cost":
                other["cost"]["matmul"] += 2
            elif what == "shape":
                changed["values"][node["out"][0]]["shape"][0] += 1
            elif what == "phase":
                other["phase"] = "optimizer"
            elif what == "op":
                other["op"] = "unheard_of"
                other["cost"]["matmul"] *= 2
            elif "serves" in node:
                del other["serves"]
            else:
                continue
            yield f"graph: node {n}: {what}", changed
    for s, storage in enumerate(graph["storages"]):
        if storage["origin"] != "parameter":
            continue
        for key, value in (("origin", "input"), ("bytes", storage["bytes"] + 4)):
            changed = copy.deepcopy(graph)
            changed["storages"][s][key] = value
            yield f"graph: parameter {s}: {key}", changed


def fails(module, attempt):
    try:
        attempt()
    except (module.Wrong, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return True
    return False


def main(argv):
    module = load(argv[1])
    with open(argv[2], encoding="utf-8") as file:
        graph = json.load(file)
    with open(argv[3], encoding="utf-8") as file:
        proof = json.load(file)
    print(module.verify(graph, proof))
    tried, passed = 0, []
    g = module.Graph(graph)
    split = module.Split(g)
    for what in proof_changes(proof):
        tried += 1
        if not fails(module, lambda: module.check(g, split, proof)):
            passed.append(what)
    for what, changed in graph_changes(graph):
        tried += 1
        if not fails(module, lambda: module.verify(changed, proof)):
            passed.append(what)
    print(f"{tried} changes tried")
    for what in passed:
        print(f"not found: {what}")
    return 1 if passed or tried == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
