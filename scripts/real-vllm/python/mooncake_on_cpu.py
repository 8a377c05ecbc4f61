"""vLLM's MooncakeConnector for engines on a CPU.

The connector of vLLM 0.32.0 asks torch for the number of its accelerator before anything else, and
torch raises where there is none. This class answers 0, which is all that differs: the transfer engine,
the registration of memory, and everything on the wire are vLLM's and Mooncake's own. An engine takes it
by kv_connector_module_path.
"""

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector


class MooncakeConnector(mooncake_connector.MooncakeConnector):
    def __init__(self, vllm_config, role, kv_cache_config):
        asked = torch.accelerator.current_device_index
        torch.accelerator.current_device_index = lambda: 0
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        finally:
            torch.accelerator.current_device_index = asked
