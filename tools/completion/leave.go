package completion

// Manner is how a client leaves.
type Manner uint8

// The manners of leaving. Manners is their number.
const (
	MannerClose Manner = iota // FIN, and RST for what still comes
	MannerHalf                // shutdown of the write side; the client still reads
	MannerReset               // RST
	MannerKeep                // does not leave, and the next request uses the connection
	Manners
)

func (m Manner) String() string { return [...]string{"close", "half-close", "rst", "kept"}[m] }
