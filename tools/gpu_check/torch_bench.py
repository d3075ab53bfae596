"""The cases of `tally-bench --device=cuda` in PyTorch, one JSON line each."""
import json
import statistics
import time

import torch
import torch.nn.functional as F

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


def gemm(n):
    flops = 2.0 * n**3
    for name, dtype, tf32 in (("f32", torch.float32, False), ("tf32", torch.float32, True),
                              ("bf16", torch.bfloat16, False), ("f16", torch.float16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        # In [-1, 1) as there: what the operands hold changes the power drawn, and so the clock.
        a = (2 * torch.rand(n, n, device="cuda") - 1).to(dtype)
        b = (2 * torch.rand(n, n, device="cuda") - 1).to(dtype)
        samples = timed(lambda: a @ b.t())
        line(f"gpu.gemm.{n}.{name}", "forward", "TFLOP_per_s", [flops / s * 1e-12 for s in samples])
    torch.backends.cuda.matmul.allow_tf32 = False


def attention(length, dtype, name):
    q, k, v = (torch.randn(1, 16, length, 128, device="cuda", dtype=dtype, requires_grad=True)
               for _ in range(3))
    dy = torch.randn_like(q)

    def forward():
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both():
        torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dy)

    case = f"gpu.attention.T{length}.causal.{name}"
    line(case, "forward", "ms", [1e3 * s for s in timed(forward)])
    line(case, "both", "ms", [1e3 * s for s in timed(both)])


def layer_norm(dtype, name):
    x = torch.randn(16384, 4096, device="cuda").to(dtype)
    w, b = torch.ones(4096, device="cuda", dtype=dtype), torch.zeros(4096, device="cuda", dtype=dtype)
    samples = timed(lambda: F.layer_norm(x, (4096,), w, b))
    line(f"gpu.layer_norm.{name}", "forward", "ms", [1e3 * s for s in samples])


def adamw(n):
    p = torch.rand(n, device="cuda", requires_grad=True)
    p.grad = torch.rand(n, device="cuda")
    optimizer = torch.optim.AdamW([p], lr=1e-3, fused=True)
    line("gpu.adamw.f32", "step", "ms", [1e3 * s for s in timed(optimizer.step)])


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
    torch.backends.cuda.matmul.allow_tf32 = False
    line(case, "step", "ms", [1e3 * s for s in samples],
         tokens_per_s=batch * 1024 / statistics.median(samples),
         peak_bytes=torch.cuda.max_memory_allocated())
    del model, optimizer
    torch.cuda.empty_cache()


if __name__ == "__main__":
    torch.manual_seed(1)
    gemm(8192)
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        attention(4096, dtype, name)
        layer_norm(dtype, name)
    adamw(100 << 20)
    step("gpu.step.gpt2.f32", 12, 768, 12, torch.float32, 8, False)
    step("gpu.step.gpt2.tf32", 12, 768, 12, torch.float32, 8, True)
    step("gpu.step.gpt2.bf16", 12, 768, 12, torch.bfloat16, 8, False)
    step("gpu.step.gpt2-xl.bf16", 48, 1600, 25, torch.bfloat16, 4, False)
