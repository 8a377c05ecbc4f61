package engines

import (
	"testing"

	"xpyd/router"
)

// A block counts as holding its tokens of every sequence only if the engine's figures leave no
// other reading, because a handle that is refused by mistake is a lost request.
func TestWholeBlocksAreReadWithoutGuessing(t *testing.T) {
	for name, tc := range map[string]struct {
		labels string
		want   bool
	}{
		"one group of full attention":        {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"`, true},
		"a model length of no whole block":   {`block_size="32",kv_cache_size_tokens="8160",num_gpu_blocks="256",sliding_window="None"`, true},
		"a window":                           {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="4096"`, false},
		"two groups":                         {`block_size="32",kv_cache_size_tokens="4096",num_gpu_blocks="256",sliding_window="None"`, false},
		"windows that leave more room":       {`block_size="32",kv_cache_size_tokens="20000",num_gpu_blocks="256",sliding_window="None"`, false},
		"blocks of two ranks":                {`block_size="32",kv_cache_size_tokens="16384",num_gpu_blocks="256",sliding_window="None"`, false},
		"ranks added up":                     {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="512",sliding_window="None"`, false},
		"no tokens":                          {`block_size="32",num_gpu_blocks="256",sliding_window="None"`, false},
		"tokens not known yet":               {`block_size="32",kv_cache_size_tokens="None",num_gpu_blocks="256",sliding_window="None"`, false},
		"nothing of a window":                {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256"`, false},
		"no size":                            {`kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"`, false},
		"one of two engines has two groups":  {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"} 1.0` + "\n" + `vllm:cache_config_info{engine="1",block_size="32",kv_cache_size_tokens="4096",num_gpu_blocks="256",sliding_window="None"`, false},
		"two engines of one group, each so":  {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"} 1.0` + "\n" + `vllm:cache_config_info{engine="1",block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"`, true},
		"two engines with blocks of no size": {`block_size="32",kv_cache_size_tokens="8192",num_gpu_blocks="256",sliding_window="None"} 1.0` + "\n" + `vllm:cache_config_info{engine="1",block_size="15",kv_cache_size_tokens="3840",num_gpu_blocks="256",sliding_window="None"`, false},
	} {
		e, err := parsePage([]byte(load("0", "0", "0")+"vllm:cache_config_info{"+tc.labels+"} 1.0\n"), router.NoRank)
		if err != nil || e.WholeBlocks != tc.want {
			t.Errorf("%s: %v (block size %d), %v, want %v", name, e.WholeBlocks, e.BlockSize, err, tc.want)
		}
	}
}
