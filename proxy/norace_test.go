//go:build !race

package proxy_test

// testsPerCore is how many tests run together for each core, unless -parallel says otherwise. They
// mostly wait.
const testsPerCore = 2
