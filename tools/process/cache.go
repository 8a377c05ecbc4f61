package process

import (
	"fmt"
	"os"
	"path/filepath"
)

// CacheDir is the folder that a variable of the environment names, or one in the user's cache.
func CacheDir(variable, name string) (string, error) {
	if dir := os.Getenv(variable); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache (set %s): %w", variable, err)
	}
	return filepath.Join(base, name), nil
}

// E2ECache is where scripts/real-vllm keeps vLLM.
func E2ECache() (string, error) { return CacheDir("E2E_CACHE", "xpyd-e2e") }
