//go:build race

package proxy_test

// testsPerCore: see its other value. Under the race detector tests are mostly work.
const testsPerCore = 1
