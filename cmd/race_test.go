//go:build race

package cmd

// testsPerCore: see its other value. Under the race detector tests are mostly work.
const testsPerCore = 1
