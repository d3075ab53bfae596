#!/usr/bin/env python3
"""Checks a split proof (proof.json) against the graph it is about (graph.json).

    verify_proof.py graph.json proof.json

Standard library only; shares no code with the library that wrote the files. From the shapes, attributes
and edges of the graph alone it finds every contraction and its FLOPs, the parameters, the split into
weight contractions (2r|W|), their weight and input gradients and everything else, and both
reconciliations with 6ND; then it demands that the proof says exactly that. FLOPs of products,
convolutions, stacks of experts and fused attention are computed here; those of other ops are taken
as declared, and their number is reported.
Exit 0: the proof holds. 1: it does not, the message says where. 2: usage.
"""
import json
import sys
from math import prod

from verify_graph import COPIES, INTEGERS, PRODUCTS, SHAPED, Graph, Wrong, same, want


class Split:
    """Who pays for what, found from the graph."""

    def __init__(self, g):
        self.g = g
        self.kind = {}  # forward contraction -> (kind, weight operand, activation operand)
        self.contractions, self.activations, self.products = {}, {}, {}
        self.second_order, self.gradient_only = [], []
        self.watched = {v["storage"] for v in g.values if v.get("watched")}
        self.differentiated = any(node["phase"] == "backward" for node in g.nodes)
        for n, node in enumerate(g.nodes):
            if g.flops[n] > 0 and node["phase"] == "forward":
                self.forward(n, node)
        for n, node in enumerate(g.nodes):
            if g.flops[n] > 0 and node["phase"] == "backward":
                self.backward(n, node)
        self.find_parameters()
        self.find_tokens()

    def forward(self, n, node):
        g = self.g
        plain = node["op"] in PRODUCTS
        for least_rank in (0, 2):
            inputs = [i for i, v in enumerate(node["in"])
                      if g.values[v]["dtype"] not in INTEGERS and not (plain and i > 1)]
            weights = [i for i in inputs if g.parameter[node["in"][i]] is not None
                       and len(g.shape(node["in"][i])) >= least_rank]
            others = [i for i in inputs if g.parameter[node["in"][i]] is None]
            if plain or len(weights) <= 1:
                break
        other = {"forward": g.flops[n], "backward_nodes": [], "backward": 0}
        if node["op"] == "sdpa":  # one node makes all its gradients: none is of a weight alone
            weights = []
        if len(weights) == 1 and others:
            w = node["in"][weights[0]]
            self.kind[n] = ("weight", weights[0], others[0])
            groups = g.groups(node)
            rows, rest = divmod(g.flops[n] * groups, 2 * g.size[w])
            want(rest == 0, f"node {n}: {g.flops[n]} is not 2·r·|W| with |W| = {g.size[w]} / {groups}")
            self.contractions[n] = {"parameter": g.parameter[w], "operand": weights[0], "elements": g.size[w],
                                    "groups": groups, "rows": rows, "forward": g.flops[n], "weight_grad": [], "input_grad": []}
        elif weights:
            self.kind[n] = ("product",)
            self.products[n] = other
        else:
            self.kind[n] = ("activation",)
            self.activations[n] = other

    def backward(self, n, node):
        g = self.g
        f = node.get("serves")
        if f is not None and g.nodes[f]["phase"] == "backward":
            self.second_order.append(n)
        elif f not in self.kind:
            self.gradient_only.append(n)
        elif self.kind[f][0] != "weight":
            entry = (self.products if self.kind[f][0] == "product" else self.activations)[f]
            entry["backward_nodes"].append(n)
            entry["backward"] += g.flops[n]
        else:
            _, weight, activation = self.kind[f]
            w, x = (g.nodes[f]["in"][i] for i in (weight, activation))
            reads = {g.root[v] for v in node["in"]}
            of_weight = g.root[x] in reads
            if of_weight == (g.root[w] in reads):  # the cotangent is an operand itself
                made = prod(g.shape(node["out"][0]))
                of_weight = made == prod(g.shape(w))
                want(of_weight != (made == prod(g.shape(x))),
                     f"node {n}: differentiates either operand of node {f}")
            want(g.flops[n] == g.flops[f], f"node {n}: costs {g.flops[n]}, 2·r·|W| is {g.flops[f]}")
            self.contractions[f]["weight_grad" if of_weight else "input_grad"].append(n)

    def find_parameters(self):
        g = self.g
        uses = {}
        for v in g.values:
            if g.origin(v) == "parameter":
                bits = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "bf16": 2, "f16": 2}.get(v["dtype"], 1)
                uses.setdefault(v["storage"], (g.storages[v["storage"]]["bytes"] // bits, set()))
        for n, node in enumerate(g.nodes):
            if node["phase"] != "forward" or node.get("kind") == "view" or node["op"] in COPIES:
                continue
            kind = self.kind.get(n, ("",))
            for i, v in enumerate(node["in"]):
                if g.parameter[v] is None:
                    continue
                use = ("contracted" if kind[0] == "weight" and i == kind[1] else
                       "lookup" if node["op"] == "gather_rows" and i == 0 else
                       "product" if kind[0] == "product" else "elementwise")
                uses[g.parameter[v]][1].add(use)
        order = ("contracted", "product", "elementwise", "lookup")
        self.parameters = {s: (numel, next((u for u in order if u in seen), "unused"), "lookup" in seen)
                           for s, (numel, seen) in sorted(uses.items())}

    def find_tokens(self):
        """Rows of the losses: what the first op reads on the way back that has more than one element."""
        g = self.g
        marked = g.marked
        served = {n["serves"] for n in g.nodes if n["phase"] == "backward" and "serves" in n}
        self.path = set() if g.loss is None else {g.loss}
        self.mark_path()
        live, ends = set(), []
        for n in range(len(g.nodes) - 1, -1, -1):
            node = g.nodes[n]
            if node["phase"] != "forward" or not node["out"]:
                continue
            read = any(v in live for v in node["out"])
            if n in served and not read:
                ends.append(node["out"][0])
            if read or n in served:
                live.update(node["in"])
        losses = ([] if g.loss is None else [g.loss]) + [v for v in reversed(ends) if v not in self.path]
        self.path.update(losses)
        self.mark_path()
        sources = []
        for v in losses:
            reader = None
            while prod(g.shape(v)) <= 1:
                producer = g.values[v].get("producer")
                if producer is None or not g.nodes[producer]["in"]:
                    break
                reader, v = producer, g.nodes[producer]["in"][0]
            shape = g.shape(v)
            rows = prod(shape[:-1]) if len(shape) > 1 else prod(shape)
            sources.append((None if reader is None else g.nodes[reader]["op"], rows))
        self.tokens = sum(rows for op, rows in sources if op == sources[0][0])
        if marked:
            self.tokens = sum(prod(g.shape(v)[:-1] if len(g.shape(v)) > 1 else g.shape(v)) for v in marked)
        elif not losses:
            self.tokens = next((c["rows"] for _, c in sorted(self.contractions.items(), reverse=True)), 0)

    def mark_path(self):
        for node in reversed(self.g.nodes):
            if any(v in self.path for v in node["out"]):
                self.path.update(node["in"])

    def terms(self, with_embedding):
        """Key -> {(node, parameter): FLOPs}: each term from its own nodes or parameters."""
        g, d = self.g, self.tokens
        counted = {s: numel for s, (numel, _, lookup) in self.parameters.items() if with_embedding or not lookup}
        t = {"6ND": {(None, s): 6 * numel * d for s, numel in counted.items()}}

        def add(key, item, flops):
            want(item not in t.setdefault(key, {}), f"{key}: {item} twice")
            t[key][item] = flops

        for key, group in (("activation_contractions", self.activations), ("parameter_products", self.products)):
            for n, c in group.items():
                for m in [n] + c["backward_nodes"]:
                    add(key, (m, None), g.flops[m])
        for key, group in (("second_order", self.second_order), ("gradient_only", self.gradient_only)):
            for n in group:
                add(key, (n, None), g.flops[n])
        names = {"lookup": "lookup_tables", "elementwise": "elementwise_parameters",
                 "product": "product_parameters", "unused": "unused_parameters"}
        for s, numel in counted.items():
            _, use, lookup = self.parameters[s]
            if use in names:
                add(names[use], (None, s), -6 * numel * d)
            elif lookup:
                add("tied_tables", (None, s), 0)
        regions = {}
        for n, c in sorted(self.contractions.items()):
            region = g.region[g.nodes[n]["in"][c["operand"]]]
            regions.setdefault(region, [n, c["parameter"], c["elements"], c["groups"], 0, 0])
            regions[region][4] += c["rows"]
            regions[region][5] += 1
        covered = {}
        for n, s, elements, groups, rows, uses in regions.values():
            if s not in counted:
                add("embedding_weights", (n, s), 6 * elements // groups * rows)
                continue
            covered[s] = covered.get(s, 0) + elements
            if groups > 1:
                if elements // groups * rows != elements * d:
                    add("inactive_experts", (n, s), 6 * (elements // groups * rows - elements * d))
            elif rows != d:
                add("several_uses" if uses > 1 else "rows", (n, s), 6 * elements * (rows - d))
        for s, elements in covered.items():
            if elements != counted[s]:
                add("partial", (None, s), -6 * (counted[s] - elements) * d)
        for n, c in self.contractions.items():
            for part in ("input_grad", "weight_grad"):
                if not c[part]:
                    frozen = part == "weight_grad" and c["parameter"] not in self.watched
                    used = self.differentiated and g.nodes[n]["out"][0] in self.path
                    add("frozen_weights" if frozen and used else "missing_" + part, (n, None), -c["forward"])
                for m in c[part][1:]:
                    add("repeated_gradients", (m, None), g.flops[m])
        return sum(counted.values()), {key: items for key, items in t.items() if items}


def number(value):
    want(isinstance(value, (int, str)) and not isinstance(value, bool), f"{value!r} is not an integer")
    return int(value)


def unique(what, entries, key):
    table = {entry[key]: entry for entry in entries}
    want(len(table) == len(entries), f"{what}: an entry stands twice")
    return table


def check_contractions(g, split, proof):
    claimed = unique("contractions", proof["contractions"], "node")
    same("weight contractions", sorted(split.contractions), sorted(claimed))
    backward, watched = split.differentiated, split.watched
    for n, c in split.contractions.items():
        for key in ("parameter", "operand", "elements", "rows", "forward"):
            same(f"contraction {n}: {key}", c[key], number(claimed[n][key]))
        same(f"contraction {n}: groups", c["groups"], number(claimed[n].get("groups", 1)))
        same(f"contraction {n}: 2·r·|W|", 2 * c["rows"] * c["elements"], g.flops[n] * c["groups"])
        same(f"contraction {n}: declared", g.nodes[n]["op"] not in PRODUCTS | SHAPED, claimed[n]["declared"])
        for part in ("weight_grad", "input_grad"):
            said, where = claimed[n][part], f"contraction {n}: {part}"
            same(where, c[part], said["nodes"])
            same(where + " FLOPs", c["forward"] * len(c[part]), number(said["flops"]))
            reason = said.get("reason", "")
            want((reason == "") == bool(c[part]), where + ": exactly a missing gradient has a reason")
            if not reason:
                continue
            facts = {"no backward recorded": not backward,
                     "not on the path to the loss": g.nodes[n]["out"][0] not in split.path,
                     "frozen: weight is not watched": part == "weight_grad" and c["parameter"] not in watched,
                     "input needs no gradient": part == "input_grad",
                     "gradient was not asked for": part == "weight_grad",
                     "computed without a contraction": True}
            want(facts.get(reason, False), f"{where}: the reason is not so: {reason}")


def check_rest(g, split, proof):
    for name, group in (("activations", split.activations), ("products", split.products)):
        claimed = unique(name, proof[name], "node")
        same(name, sorted(group), sorted(claimed))
        for n, c in group.items():
            same(f"{name}: node {n}", (c["forward"], c["backward_nodes"], c["backward"]),
                 (number(claimed[n]["forward"]), claimed[n]["backward_nodes"], number(claimed[n]["backward"])))
    same("second_order", split.second_order, proof["second_order"])
    same("gradient_only", split.gradient_only, proof["gradient_only"])
    sets = [m for c in proof["contractions"]
            for m in [c["node"]] + c["weight_grad"]["nodes"] + c["input_grad"]["nodes"]]
    sets += [m for c in proof["activations"] + proof["products"] for m in [c["node"]] + c["backward_nodes"]]
    sets += proof["second_order"] + proof["gradient_only"]
    every = [n for n, node in enumerate(g.nodes) if g.flops[n] > 0 and node["phase"] in ("forward", "backward")]
    same("contractions in exactly one set", every, sorted(sets))


def check_parameters(g, split, proof):
    claimed = unique("parameters", proof["parameter_list"], "storage")
    same("parameters", sorted(split.parameters), sorted(claimed))
    watched = split.watched
    for s, (numel, use, lookup) in split.parameters.items():
        p = claimed[s]
        same(f"name of parameter {s}", g.storages[s].get("name", f"parameter {s}"), p["name"])
        same(f"parameter {p['name']}: watched", s in watched, p["watched"])
        same(f"parameter {p['name']}", (numel, use, lookup), (number(p["numel"]), p["use"], p["lookup"]))
        mine = [c for c in split.contractions.values() if c["parameter"] == s]
        sums = [sum(c["rows"] for c in mine), sum(c["forward"] for c in mine),
                sum(c["forward"] * len(c["weight_grad"]) for c in mine),
                sum(c["forward"] * len(c["input_grad"]) for c in mine)]
        same(f"parameter {p['name']}: rows, forward, weight_grad, input_grad", sums,
             [number(p[key]) for key in ("rows", "forward", "weight_grad", "input_grad")])
    numels = list(split.parameters.values())
    stacks, active = {}, sum(n for n, _, _ in numels)
    for n, c in split.contractions.items():
        if c["groups"] > 1:
            region = g.region[g.nodes[n]["in"][c["operand"]]]
            stacks.setdefault(region, [c["elements"], c["elements"] // c["groups"], 0])[2] += c["rows"]
    for elements, expert, rows in stacks.values():
        if split.tokens > 0:
            active -= elements - min(elements, expert * rows // split.tokens)
    same("active parameters", active, number(proof["parameters"]["active"]))
    same("parameter counts", [sum(n for n, _, _ in numels), sum(n for n, _, lookup in numels if lookup),
                              sum(n for n, use, _ in numels if use == "contracted")],
         [number(proof["parameters"][key]) for key in ("all", "embedding", "matmul")])


def check_flops(g, split, proof):
    def phase(name):
        return sum(f for f, node in zip(g.flops, g.nodes) if node["phase"] == name)

    weights, others = list(split.contractions.values()), list(split.activations.values())
    products = list(split.products.values())
    attention = sum(c["backward"] for c in others)
    found = {
        "forward": phase("forward"), "backward": phase("backward"), "recompute": phase("recompute"),
        "total": phase("forward") + phase("backward"), "textbook_backward": 2 * phase("forward"),
        "weight_forward": sum(c["forward"] for c in weights),
        "activation_forward": sum(c["forward"] for c in others),
        "product_forward": sum(c["forward"] for c in products),
        "weight_grad": sum(c["forward"] * len(c["weight_grad"]) for c in weights),
        "input_grad": sum(c["forward"] * len(c["input_grad"]) for c in weights) + attention,
        "activation_backward": attention,
        "other_backward": sum(c["backward"] for c in products) + sum(
            g.flops[n] for n in split.second_order + split.gradient_only)}
    for key, value in found.items():
        same(f"flops: {key}", value, number(proof["flops"][key]))
    return found["total"]


def check_reconciliations(split, proof, total):
    claimed = unique("reconciliations", proof["reconciliations"], "name")
    same("reconciliations", ["6ND", "6ND_non_embedding"], sorted(claimed))
    same("tokens", split.tokens, number(proof["tokens"]))
    for name, with_embedding in (("6ND", True), ("6ND_non_embedding", False)):
        parameters, terms = split.terms(with_embedding)
        said = unique(name, claimed[name]["terms"], "key")
        same(f"{name}: N", parameters, number(claimed[name]["parameters"]))
        same(f"{name}: terms", sorted(terms), sorted(said))
        for key, items in terms.items():
            listed = [((i.get("node"), i.get("parameter")), number(i["flops"])) for i in said[key]["items"]]
            want(len(dict(listed)) == len(listed), f"{name}: {key}: an item stands twice")
            same(f"{name}: {key}", items, dict(listed))
            same(f"{name}: {key} in all", sum(items.values()), number(said[key]["flops"]))
        same(f"{name}: sum of the terms", total, sum(sum(items.values()) for items in terms.values()))
        same(f"{name}: total", total, number(claimed[name]["total"]))
        same(f"{name}: difference", 0, number(claimed[name]["difference"]))


def check(g, split, proof):
    want(proof.get("schema") == "tally.proof/1", "proof: unknown schema")
    want(proof["holds"] is True and proof["failures"] == [], "the proof itself says that it does not hold")
    check_contractions(g, split, proof)
    check_rest(g, split, proof)
    check_parameters(g, split, proof)
    total = check_flops(g, split, proof)
    check_reconciliations(split, proof, total)
    text = f"holds: {len(split.contractions)} weight contractions, {len(split.parameters)} parameters, {total} FLOPs"
    return text + (f"; {g.declared} nodes by their declared cost" if g.declared else "")


def verify(graph_data, proof):
    g = Graph(graph_data)
    return check(g, Split(g), proof)


def main(argv):
    if len(argv) != 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        with open(argv[1], encoding="utf-8") as graph, open(argv[2], encoding="utf-8") as proof:
            print(verify(json.load(graph), json.load(proof)))
        return 0
    except Wrong as wrong:
        print(f"does not hold: {wrong}", file=sys.stderr)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        print(f"does not hold: malformed input: {type(error).__name__}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
