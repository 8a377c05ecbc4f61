"""A scheduler of vLLM that writes down how many blocks its prefix cache has, so that a check can compare that with what
the engine's KV events have said. vLLM itself has no route for it."""

import os

from vllm.v1.core.sched.async_scheduler import AsyncScheduler


class Scheduler(AsyncScheduler):
    def update_from_output(self, *args, **kwargs):
        outputs = super().update_from_output(*args, **kwargs)
        self._write()
        return outputs

    def reset_prefix_cache(self, *args, **kwargs):
        done = super().reset_prefix_cache(*args, **kwargs)
        self._write()
        return done

    def _write(self):
        path = os.environ["CACHE_LIST"]
        with open(path + ".new", "w") as f:
            f.write(str(len(self.kv_cache_manager.block_pool.cached_block_hash_to_block)))
        os.replace(path + ".new", path)
