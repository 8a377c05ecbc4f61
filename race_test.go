//go:build race

package main

// testsPerCore: see its other value. Under the race detector tests are mostly work.
const testsPerCore = 1
