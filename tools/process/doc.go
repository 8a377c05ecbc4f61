// Package process runs the programs of a run: proxies, engines. Each ends with the program that has
// started it, however that ends. It also asks those that run what they count and hold: gauges,
// goroutines, descriptors, memory.
package process
