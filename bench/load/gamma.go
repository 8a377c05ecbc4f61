package load

import (
	"math"

	"gonum.org/v1/gonum/mathext/prng"
)

// draws are those of numpy.random after numpy.random.seed, from which vllm bench serve takes the
// gaps between its requests. So both tools send the load of a seed at the same times.
type draws struct {
	source *prng.MT19937
	spare  float64 // the second of a pair of normal draws
	spared bool
}

// newDraws begins a sequence. numpy takes seeds of 32 bits; the lower 32 of a longer seed count.
func newDraws(seed uint64) *draws {
	d := &draws{source: prng.NewMT19937()}
	d.source.Seed(seed)
	return d
}

// uniform draws from [0, 1).
func (d *draws) uniform() float64 {
	a, b := d.source.Uint32()>>5, d.source.Uint32()>>6
	return (float64(a)*(1<<26) + float64(b)) / (1 << 53)
}

func (d *draws) exponential() float64 { return -math.Log(1 - d.uniform()) }

// normal draws by Marsaglia's polar method, two at a time.
func (d *draws) normal() float64 {
	if d.spared {
		d.spared = false
		return d.spare
	}
	for {
		x, y := 2*d.uniform()-1, 2*d.uniform()-1
		if r := x*x + y*y; r > 0 && r < 1 {
			f := math.Sqrt(-2 * math.Log(r) / r)
			d.spare, d.spared = f*x, true
			return f * y
		}
	}
}

// gamma draws from the gamma distribution of scale 1.
func (d *draws) gamma(shape float64) float64 {
	switch {
	case shape == 1:
		return d.exponential()
	case shape < 1:
		return d.smallGamma(shape)
	}
	// Marsaglia and Tsang.
	b := shape - 1.0/3
	c := 1 / math.Sqrt(9*b)
	for {
		x := d.normal()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		u := d.uniform()
		if u < 1-0.0331*x*x*x*x || math.Log(u) < x*x/2+b*(1-v+math.Log(v)) {
			return b * v
		}
	}
}

// smallGamma is for shapes below 1 (Ahrens and Dieter).
func (d *draws) smallGamma(shape float64) float64 {
	for {
		u, v := d.uniform(), d.exponential()
		if u <= 1-shape {
			if x := math.Pow(u, 1/shape); x <= v {
				return x
			}
			continue
		}
		y := -math.Log((1 - u) / shape)
		if x := math.Pow(1-shape+shape*y, 1/shape); x <= v+y {
			return x
		}
	}
}
