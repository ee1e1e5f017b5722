"""Device-level trial of the convolution kernels. Not for the repository."""
import ctypes, subprocess, sys, os, json, math
from pathlib import Path
from opweld.device import pieces
from opweld.device.used import used
OUT = Path(os.environ.get("OUT", "/tmp/h"))
KEEP = """
struct Keep {
  static constexpr int kLanes = 4;
  float* result; const float* bias; int64_t n;
  template <int kLanes, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&v)[kLanes]) const {
    if constexpr (kLanes == 4) {
      *reinterpret_cast<float4*>(result + at) = make_float4(v[0], v[1], v[2], v[3]);
    } else {
      for (int lane = 0; lane < kLanes; ++lane) result[at + lane] = v[lane];
    }
  }
};
"""
LAUNCH = """
extern "C" int64_t NAME_bytes(const void* c) { return op::convolution_bytes<FORM>(c); }
extern "C" int NAME(const void* c, void* workspace, void* result, void* stream) {
  return op::convolve<FORM>(c, workspace, Keep{static_cast<float*>(result), nullptr, 0}, 0, true, stream);
}
"""
def text():
    launch = [LAUNCH.replace("NAME", f"conv{s}_{c}").replace("FORM", f"op::WindowTiles<op::Tf32, {s}, {c}>") for s in (2, 3) for c in (64, 128)]
    need = ["convolve", "WindowTiles", "Tf32", "wgmma_half_64_typed"]
    body = "\n".join(used(pieces(need), [KEEP, *launch]))
    return "\n".join([body, KEEP, *launch])
class Conv(ctypes.Structure):
    _fields_ = [("x", ctypes.c_void_p), ("w", ctypes.c_void_p)] + [(n, ctypes.c_int64) for n in ("batches", "channels", "filters", "batch", "pixel", "channel")] + [(n, ctypes.c_int * 3) for n in ("size", "kernel", "stride", "padding", "dilation", "out")]
def build():
    OUT.mkdir(exist_ok=True)
    src = OUT / "conv.cu"; src.write_text(text())
    r = subprocess.run(["nvcc", "-O3", "-std=c++17", "-arch=sm_90a", "-shared", "-Xcompiler", "-fPIC", "--ptxas-options=-v", str(src), "-o", str(OUT / "conv.so"), "-lcuda"] if False else ["nvcc", "-O3", "-std=c++17", "-gencode", "arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC", "--ptxas-options=-v", str(src), "-o", "/tmp/conv.so"], capture_output=True, text=True)
    (OUT / "nvcc.log").write_text(r.stdout + r.stderr)
    if r.returncode: print(r.stderr[-6000:]); sys.exit(1)
    lines = r.stderr.splitlines()
    for i, l in enumerate(lines):
        if "Compiling entry" in l and "contract_sm90" in l: print(l[-180:], *lines[i + 1:i + 3])
    for l in lines:
        if "warning" in l: print(l)
if __name__ == "__main__":
    build()
    if "--build" in sys.argv: sys.exit()
    import torch
    sys.path.insert(0, os.environ.get("TOOLS", "bench"))
    from conv_cases import CASES, module, flops
    from triton.testing import do_bench
    lib = ctypes.CDLL("/tmp/conv.so")
    dev = torch.device("cuda"); print(torch.cuda.get_device_name())
    ms = lambda f: do_bench(f, warmup=10, rep=30, return_mode="median")
    rows = []
    for name, v in CASES.items():
        if v["kind"] != "conv" or v["groups"] != 1 or v["c"] < 16: continue
        torch.manual_seed(0); conv = module(v).to(dev); x = torch.randn(v["n"], v["c"], *v["space"], device=dev)
        conv.bias.data.zero_()
        with torch.no_grad():
            y = conv(x); ref = conv.double()(x[:2].double()); conv.float()
        three = lambda t, d: [d] * (3 - len(t)) + list(t)
        nhwc = x.movedim(1, -1).contiguous()
        c = Conv(); c.w = conv.weight.data_ptr(); c.batches, c.channels, c.filters = v["n"], v["c"], v["out"]
        for field, t, d in (("size", x.shape[2:], 1), ("kernel", conv.kernel_size, 1), ("stride", conv.stride, 1), ("padding", conv.padding, 0), ("dilation", conv.dilation, 1), ("out", y.shape[2:], 1)):
            setattr(c, field, (ctypes.c_int * 3)(*three(t, d)))
        pixels = math.prod(x.shape[2:]); s = 3 if len(v["space"]) == 3 else 2
        result = torch.empty(v["n"], *y.shape[2:], v["out"], device=dev)
        stream = torch.cuda.current_stream().cuda_stream
        row = dict(case=name, eager=ms(lambda: conv(x)))
        if x.dim() in (4, 5):
            fmt = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
            c2 = module(v).to(dev).to(memory_format=fmt); x2 = x.to(memory_format=fmt)
            with torch.no_grad(): row["nhwc"] = ms(lambda: c2(x2))
        err = lambda a: ((a.double() - ref).pow(2).mean().sqrt() / ref.pow(2).mean().sqrt()).item()
        def at(t, *strides): c.x = t.data_ptr(); c.batch, c.pixel, c.channel = strides
        for col in (64, 128) if v["out"] > 64 else (64,):
            fn, by = getattr(lib, f"conv{s}_{col}"), getattr(lib, f"conv{s}_{col}_bytes"); by.restype = ctypes.c_int64
            work = torch.empty(max(1, by(ctypes.byref(c))), dtype=torch.uint8, device=dev)
            go = lambda: fn(ctypes.byref(c), ctypes.c_void_p(work.data_ptr()), ctypes.c_void_p(result.data_ptr()), ctypes.c_void_p(stream))
            for how, t, strides in (("", nhwc, (pixels * v["c"], v["c"], 1)), ("nchw", x, (pixels * v["c"], 1, pixels))):
                at(t, *strides); result.fill_(float("nan")); e = go(); torch.cuda.synchronize()
                bad = err(result[:2].movedim(-1, 1)); full = ((result.movedim(-1, 1) - y).abs().max() / y.abs().max()).item()
                if e or not bad < 4e-4 or not full < 5e-3: print("WRONG", name, col, how, e, bad, full)
                row[f"{col}{how}"] = best = ms(go)
        row.update(rms=bad, eager_rms=err(y[:2]))
        prof = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        with prof:
            for _ in range(5): go()
            torch.cuda.synchronize()
        row["kernels"] = {k.key.split("(")[0].split("<")[0][-24:]: round(k.device_time, 1) for k in prof.key_averages() if k.device_time > 0.5}
        row["gflop"] = flops(v, y, conv) / 1e9
        rows.append(row); print(json.dumps({k: round(w, 5) if isinstance(w, float) else w for k, w in row.items()}), flush=True)
        del x, y, nhwc, result, work, ref; torch.cuda.empty_cache()
    (OUT / "conv.json").write_text(json.dumps(rows))
