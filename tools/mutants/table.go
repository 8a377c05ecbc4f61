package main

import "slices"

// guards are the mutants of what every completion depends on. -quick has only those. Each is named
// by what it breaks and by the declaration that it changes.
func guards() []mutant { return slices.Concat(streams(), handles(), carries()) }

func mutants() []mutant {
	return slices.Concat(guards(), retries(), limits(), keys(), roleless(), ways(), kvEvents())
}

// controls change nothing that a test can see. A suite that fails under them kills any mutant.
func controls() []mutant {
	return []mutant{{
		name: "control: the same minimum in another order", in: "(*Head).Wait",
		old: "return min(n, 120)",
		new: "return min(120, n)",
	}, {
		name: "control: the same ends in another order", in: "(*Lease).Release",
		old: "b.record(o)\n\tl.endLocal()",
		new: "l.endLocal()\n\tb.record(o)",
	}}
}
