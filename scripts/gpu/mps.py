"""CUDA's multi-process service (MPS): engines of one GPU compute side by side, each on its share of the
multiprocessors, in place of taking turns. An engine's share is CUDA_MPS_ACTIVE_THREAD_PERCENTAGE in its env.
No setting of the GPU changes: the service is a process, and it ends with the rig."""
import os
import shutil
import subprocess
import time

PROBE = "import torch; torch.ones(1).cuda(); print(torch.cuda.get_device_properties(0).multi_processor_count)"


def start(folder):
    """Starts the service for all processes that are started afterwards. What is returned says whether it works:
    the multiprocessors that a process with a half of them sees, or why it does not."""
    tool = shutil.which("nvidia-cuda-mps-control", path=os.environ["PATH"] + ":/usr/local/nvidia/bin:/usr/bin:/usr/local/cuda/bin")
    if not tool:
        return {"error": "there is no nvidia-cuda-mps-control"}
    os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/mps-pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/mps-log"}
    for key in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        os.makedirs(os.environ[key], exist_ok=True)
    try:
        subprocess.run([tool, "-d"], check=True, timeout=20, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        p = subprocess.run([os.environ["PY"], "-c", PROBE], env=os.environ | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, capture_output=True, text=True, timeout=60)
        if p.returncode == 0:
            return {"multiprocessors_of_a_half": int(p.stdout), "tool": tool}
        why = p.stderr[-300:]
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        why = str(e)
    end({"tool": tool})
    return {"error": why}


def end(service):
    if not service or "tool" not in service or "CUDA_MPS_PIPE_DIRECTORY" not in os.environ:
        return
    try:
        subprocess.run([service["tool"]], input="quit -t 5\n", text=True, timeout=20, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        pass  # none is left to end
    for key in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        os.environ.pop(key, None)
