//go:build race

package cmd

// testsPerCore has another value without the race detector. With it the tests mostly compute.
const testsPerCore = 1
