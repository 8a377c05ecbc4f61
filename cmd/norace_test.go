//go:build !race

package cmd

// testsPerCore is how many tests run together for each core, unless -parallel says otherwise. The tests
// mostly wait.
const testsPerCore = 4
