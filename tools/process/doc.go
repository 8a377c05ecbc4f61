// Package process runs the programs of a benchmark: proxies that are compared, engines.
// Each ends with the program that has started it, however that ends.
package process
