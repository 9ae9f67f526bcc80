"""Control: cuDNN's fused attention through its Python front end, where that is installed."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import PREFILL, sizes


@implementation(
    "attention_bf16_cudnn",
    problem=PREFILL,
    device="cuda",
    dtype="bf16",
    control=True,
    requires=("torch", "cudnn"),
    supports=lambda axes: int(axes["d"]) % 8 == 0,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Build the graph and its plan once; a launch executes it on ready tensors."""
    import cudnn
    import torch

    b, hq, _, sq, _, d = sizes(axes)
    held = {name: torch.from_numpy(inputs[name]).to("cuda", torch.bfloat16) for name in ("q", "k", "v")}
    out = torch.empty((b, hq, sq, d), dtype=torch.bfloat16, device="cuda")
    graph = cudnn.pygraph(
        io_data_type=cudnn.data_type.BFLOAT16,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
    )
    nodes = {name: graph.tensor_like(tensor) for name, tensor in held.items()}
    result, _ = graph.sdpa(
        name="sdpa",
        **nodes,
        is_inference=True,
        attn_scale=d**-0.5,
        use_causal_mask_bottom_right=bool(axes["causal"]),  # the last query sees the last key
    )
    result.set_output(True).set_dim(out.shape).set_stride(out.stride())
    graph.build([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
    pack = {nodes[name]: tensor for name, tensor in held.items()} | {result: out}
    workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device="cuda")

    def load(fresh: Inputs) -> None:
        for name, tensor in held.items():
            tensor.copy_(torch.from_numpy(fresh[name]))

    return Launch(
        run=lambda: graph.execute(pack, workspace),
        output=lambda: out.float().cpu().numpy(),
        load=load,
        facts={"symbol": "sdpa", "backend": "cudnn"},
    )
