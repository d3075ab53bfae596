"""A recorded graph (graph.json) as verify_proof.py sees it: what a value is a form of, and the FLOPs of
each contraction from shapes and attributes alone. Standard library only."""
import json
from math import prod

INTEGERS = {"i64", "i32", "u8", "bool"}
PRODUCTS = {"matmul", "linear"}
# Other contractions whose FLOPs follow from shapes; those of all other ops are declared.
SHAPED = {"conv2d", "conv2d_input_grad", "conv2d_weight_grad", "grouped_matmul",
          "grouped_matmul_weight_grad", "sdpa", "sdpa_grad"}
COPIES = {"cast", "contiguous"}


class Wrong(Exception):
    pass


def want(condition, message):
    if not condition:
        raise Wrong(message)


def same(what, found, claimed):
    want(found == claimed, f"{what}: the graph gives {found}, the proof says {claimed}")


def pairs(queries, keys, attrs):
    """Pairs of query and key that headline attention counts: squares, but what a window shows exactly."""
    window, causal = attrs.get("window", 0), attrs.get("causal", False)
    total = 0
    for length in attrs.get("documents") or [None]:
        q, k = (queries, keys) if length is None else (length, length)
        if not 0 < window < k:
            total += q * k
            continue
        for place in range(k - q, k):
            last = place if causal else min(k - 1, place + window - 1)
            total += max(0, last - max(0, place - window + 1) + 1)
    return total


class Graph:
    def __init__(self, data):
        want(data.get("schema") == "tally.graph/1", "graph: unknown schema")
        self.nodes, self.values, self.storages = data["nodes"], data["values"], data["storages"]
        self.loss, self.marked = data.get("loss"), data.get("tokens", [])
        self.asked = [pair["of"] for pair in data["gradients"]]
        self.declared = 0
        self.root = list(range(len(self.values)))
        self.size = [prod(v["shape"]) for v in self.values]  # distinct elements of the root shown
        self.region = list(range(len(self.values)))
        self.parameter = [v["storage"] if self.origin(v) == "parameter" else None for v in self.values]
        cuts = {}
        for n, node in enumerate(self.nodes):
            for v in node["in"]:
                want(self.values[v].get("producer", -1) < n, f"node {n} reads %{v} before it is made")
            if node["phase"] == "recompute" and "serves" in node:
                for v, w in zip(node["out"], self.nodes[node["serves"]]["out"]):
                    self.become(v, w, self.size[w], self.region[w])
            elif node.get("kind") == "view" or node["op"] in COPIES:
                w = node["in"][0]
                for j, v in enumerate(node["out"]):
                    region = self.region[w]
                    if prod(self.shape(v)) < prod(self.shape(w)):
                        cut = (w, j, node["op"], json.dumps(node.get("attrs"), sort_keys=True))
                        region = cuts.setdefault(cut, v)
                    self.become(v, w, min(self.size[w], prod(self.shape(v))), region)
        self.flops = [self.count(n) for n in range(len(self.nodes))]

    def origin(self, value):
        return self.storages[value["storage"]]["origin"]

    def shape(self, v):
        return self.values[v]["shape"]

    def become(self, v, w, size, region):
        self.root[v], self.parameter[v], self.size[v], self.region[v] = (
            self.root[w], self.parameter[w], size, region)

    def count(self, n):
        """Contraction FLOPs of a node: 2 for each product of two elements that is summed."""
        node = self.nodes[n]
        if node.get("kind") == "view":
            return 0
        claimed = int(node["cost"]["matmul"])
        if node["op"] in SHAPED:
            flops = self.shaped(n, node)
            want(flops == claimed, f"node {n}: costs {flops}, declares {claimed}")
            return flops
        if node["op"] not in PRODUCTS:
            self.declared += claimed > 0
            return claimed
        a, b = (list(self.shape(v)) for v in node["in"][:2])
        attrs = node.get("attrs", {})
        flip_a, flip_b = attrs.get("transpose_a"), attrs.get("transpose_b", attrs.get("transpose_weight"))
        row, column = len(a) == 1, len(b) == 1
        a, b = [1] + a if row else a, b + [1] if column else b
        if flip_a:
            a[-2:] = a[:-3:-1]
        if flip_b and not column:
            b[-2:] = b[:-3:-1]
        want(a[-1] == b[-2], f"node {n}: inner dimensions differ")
        batch = max(len(a), len(b)) - 2
        wide_a, wide_b = ([1] * (batch + 2 - len(s)) + s for s in (a, b))
        out = []
        for x, y in zip(wide_a[:batch], wide_b[:batch]):
            want(x == y or 1 in (x, y), f"node {n}: batches do not broadcast")
            out.append(y if x == 1 else x)
        out += ([] if row else [a[-2]]) + ([] if column else [b[-1]])
        want(out == self.shape(node["out"][0]), f"node {n}: its output is not the product of its inputs")
        flops = 2 * prod(out) * a[-1]
        want(flops == claimed, f"node {n}: costs {flops}, declares {claimed}")
        return flops


    def shaped(self, n, node):
        ins, attrs = [self.shape(v) for v in node["in"]], node.get("attrs", {})
        made = [self.shape(v) for v in node["out"]]
        if node["op"] == "sdpa":
            (b, t, h, d), (_, s, g, _), v = ins
            fits, outs = ins[1] == [b, s, g, d] and v[:3] == [b, s, g], [[b, t, h, v[3]], [b, h, t]]
            flops = 2 * pairs(t, s, attrs) * b * h * (d + v[3])
        elif node["op"] == "sdpa_grad":
            dy, (b, t, h, d), k, v = ins[:4]
            fits, outs = dy == [b, t, h, v[3]] and k == v[:3] + [d], ins[1:4]
            flops = 4 * pairs(t, k[1], attrs) * b * h * (d + v[3])
        elif node["op"] == "grouped_matmul":
            x, w = ins[0], ins[1][:1] + (ins[1][:0:-1] if attrs.get("transpose_w") else ins[1][1:])
            fits, outs = x[1] == w[1] and ins[2] == [w[0] + 1], [[x[0], w[2]]]
            flops = 2 * prod(x) * w[2]
        elif node["op"] == "grouped_matmul_weight_grad":
            x, dy = ins[:2]
            fits, outs = x[0] == dy[0], [[ins[2][0] - 1, x[1], dy[1]]]
            flops = 2 * prod(x) * dy[1]
        else:  # each output of a convolution sums one product per tap and input channel of its group
            x, w, dy = {"conv2d": (ins[0], ins[1], made[0]), "conv2d_input_grad": (made[0], ins[1], ins[0]),
                        "conv2d_weight_grad": (ins[1], made[0], ins[0])}[node["op"]]
            size = [(x[2 + i] + 2 * attrs[f"padding_{a}"] - attrs[f"dilation_{a}"] * (w[2 + i] - 1) - 1)
                    // attrs[f"stride_{a}"] + 1 for i, a in enumerate("hw")]
            fits = dy == [x[0], w[0]] + size and x[1] == w[1] * attrs["groups"]
            outs, flops = made, 2 * prod(dy) * prod(w[1:])
        want(fits and made == outs, f"node {n}: shapes do not fit {node['op']}")
        return flops

    def groups(self, node):
        """Matrices in a stack of experts."""
        return self.shape(node["in"][1])[0] if node["op"] == "grouped_matmul" else 1
