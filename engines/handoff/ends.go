package handoff

// End says that a handle was issued, or how the handle ended.
type End uint8

const (
	Issued   End = iota // P has given the handle
	Burnt               // D has used the handle
	Released            // xpyd gave it back by a request that D rejected
	Drained             // xpyd gave it back by a one-token decode
	Expired             // it became older than lease − margin before any D had it
	Lost                // xpyd could not give it back; Orphan says why, unless P has restarted
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
	// The next three are for prefills whose blocks xpyd cannot name. OrphanUnusable: the prefill
	// answered with a handle that xpyd cannot read. OrphanAnswerLost: the prefill broke off before its
	// answer was complete, and may hold blocks. OrphanRepeated: the prefill closed a kept connection
	// without an answer, and got the same request again.
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

// Ends lists the names of all ends, indexed by End. Issued is none, and has no name here.
func Ends() []string {
	all := names(ends)
	all[Issued] = ""
	return all
}

// Orphans lists the names of all reasons, indexed by Orphan.
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
