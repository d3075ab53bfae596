"""The cases of `tally-bench --device=cuda` in PyTorch, a JSON line each; or one that says why not.

A case that fails says so and the next is run.
"""
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
    ABSENT = None if torch.cuda.is_available() else f"PyTorch {torch.__version__} sees no GPU"
except Exception as error:  # what a broken install raises is anyone's guess
    ABSENT = f"{type(error).__name__}: {error}"
if ABSENT:
    print(json.dumps({"absent": ABSENT}))
    sys.exit(0)

SECONDS = 0.3


def timed(fn, queued=True):
    """Seconds a call: of a queue of calls, or each call waited for."""
    for _ in range(2):
        fn()
    torch.cuda.synchronize()
    start = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    one = max(time.perf_counter() - start, 1e-6)
    batch = max(1, min(200, int(0.02 / one))) if queued else 1
    samples, total = [], 0.0
    while len(samples) < 200 and (total < SECONDS or len(samples) < 5):
        start = time.perf_counter()
        for _ in range(batch):
            fn()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) / batch)
        total += samples[-1] * batch
    return samples


def line(case, phase, metric, samples, **extra):
    print(json.dumps({"case": case, "impl": "pytorch-" + torch.__version__, "phase": phase,
                      "metric": metric, "value": statistics.median(samples), "min": min(samples),
                      "max": max(samples), "reps": len(samples), "extra": extra}), flush=True)


def gemm(case, n, dtype, tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    # In [-1, 1) as there: what the operands hold changes the power drawn, and so the clock.
    a = (2 * torch.rand(n, n, device="cuda") - 1).to(dtype)
    b = (2 * torch.rand(n, n, device="cuda") - 1).to(dtype)
    samples = timed(lambda: a @ b.t())
    line(case, "forward", "TFLOP_per_s", [2.0 * n**3 / s * 1e-12 for s in samples],
         ms=1e3 * statistics.median(samples))


def attention(case, length, dtype):
    q, k, v = (torch.randn(1, 16, length, 128, device="cuda", dtype=dtype, requires_grad=True)
               for _ in range(3))
    dy = torch.randn_like(q)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dy)

    line(case, "forward", "ms", [1e3 * s for s in timed(forward)])
    line(case, "both", "ms", [1e3 * s for s in timed(both)])


def layer_norm(case, dtype):
    x = torch.randn(16384, 4096, device="cuda").to(dtype)
    w = torch.ones(4096, device="cuda", dtype=dtype)
    b = torch.zeros(4096, device="cuda", dtype=dtype)
    samples = timed(lambda: F.layer_norm(x, (4096,), w, b))
    line(case, "forward", "ms", [1e3 * s for s in samples])


def adamw(case, n):
    p = torch.rand(n, device="cuda", requires_grad=True)
    p.grad = torch.rand(n, device="cuda")
    optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)
    line(case, "step", "ms", [1e3 * s for s in timed(optimizer.step)])


class Block(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
        self.qkv, self.out = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d)
        self.up, self.down = torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.qkv(self.ln1(x)).split(d, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, layers, d, heads, vocab=50257, context=1024):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocab, d), torch.nn.Embedding(context, d)
        self.blocks = torch.nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(d)
        for p in self.parameters():
            torch.nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())  # as there: no f32 copy


def step(case, layers, d, heads, dtype, batch, tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = Gpt(layers, d, heads).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(50257, (batch, 1024), device="cuda")

    def once():
        optimizer.zero_grad(set_to_none=True)
        model(ids, ids).backward()
        optimizer.step()

    samples = timed(once, queued=False)
    line(case, "step", "ms", [1e3 * s for s in samples],
         tokens_per_s=batch * 1024 / statistics.median(samples),
         peak_bytes=torch.cuda.max_memory_allocated())


CASES = {
    "gpu.gemm.8192.f32": (gemm, 8192, torch.float32, False),
    "gpu.gemm.8192.tf32": (gemm, 8192, torch.float32, True),
    "gpu.gemm.8192.bf16": (gemm, 8192, torch.bfloat16, False),
    "gpu.gemm.8192.f16": (gemm, 8192, torch.float16, False),
    "gpu.attention.T4096.causal.f32": (attention, 4096, torch.float32),
    "gpu.layer_norm.f32": (layer_norm, torch.float32),
    "gpu.attention.T4096.causal.bf16": (attention, 4096, torch.bfloat16),
    "gpu.layer_norm.bf16": (layer_norm, torch.bfloat16),
    "gpu.adamw.f32": (adamw, 100 << 20),
    "gpu.step.gpt2.f32": (step, 12, 768, 12, torch.float32, 8, False),
    "gpu.step.gpt2.tf32": (step, 12, 768, 12, torch.float32, 8, True),
    "gpu.step.gpt2.bf16": (step, 12, 768, 12, torch.bfloat16, 8, False),
    "gpu.step.gpt2-xl.bf16": (step, 48, 1600, 25, torch.bfloat16, 4, False),
}


def main():
    torch.manual_seed(1)
    failed = 0
    for case, (run, *settings) in CASES.items():
        try:
            run(case, *settings)
        except Exception as error:  # most likely of memory; the others are still worth knowing
            failed = 5
            why = f"{type(error).__name__}: {error}"
            print(json.dumps({"case": case, "impl": "pytorch-" + torch.__version__, "failed": why}),
                  flush=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.cuda.empty_cache()
    return failed


if __name__ == "__main__":
    sys.exit(main())
