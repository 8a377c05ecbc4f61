package handoff

// End says that a handle was issued, or how it ended.
type End uint8

const (
	Issued   End = iota // P gave it
	Burnt               // D used it
	Released            // given back by a request that D rejected
	Drained             // given back by a one-token decode
	Expired             // older than lease − margin before any D had it
	Lost                // could not be given back; Orphan says why
	ends
)

func (e End) String() string {
	return [ends]string{"issued", "burnt", "released", "drained", "expired", "lost"}[e]
}

// Orphan says why blocks wait for the end of their lease, or may have to.
type Orphan uint8

const (
	OrphanExpired Orphan = iota
	OrphanReleaseOff
	OrphanReleaseFailed
	OrphanNoDecode
	OrphanConnector
	OrphanHost
	// The next three are about prefills whose blocks cannot be named. With OrphanUnusable the prefill
	// answered with a handle that cannot be read. With OrphanAnswerLost it broke off before its answer
	// was whole, and may hold blocks. With OrphanRepeated it broke off a kept connection without a word,
	// and got the same request once more.
	OrphanUnusable
	OrphanAnswerLost
	OrphanRepeated
	orphans
)

func (o Orphan) String() string {
	return [orphans]string{
		OrphanExpired:       "expired",
		OrphanReleaseOff:    "release_off",
		OrphanReleaseFailed: "release_failed",
		OrphanNoDecode:      "no_decode",
		OrphanConnector:     "connector",
		OrphanHost:          "host_not_allowed",
		OrphanUnusable:      "unusable_handle",
		OrphanAnswerLost:    "answer_lost",
		OrphanRepeated:      "repeated",
	}[o]
}

// end returns how the handle of such blocks ended.
func (o Orphan) end() End {
	if o == OrphanExpired {
		return Expired
	}
	return Lost
}

// Ends lists the names of all ends, each at its number.
func Ends() []string { return names(ends) }

// Orphans lists the names of all reasons, each at its number.
func Orphans() []string { return names(orphans) }

func names[L interface {
	~uint8
	String() string
}](n L) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = L(i).String()
	}
	return all
}
