package router

import (
	"slices"
	"time"
)

// Speed is how fast a backend works, compared with its peers: those of its role that serve its models with the same release
// and connector.
type Speed struct {
	Backend *Backend
	Work    string        // that in which it is slowest beside them: prefill, decode, transfer
	Ratio   float64       // its speed as a part of theirs, the median; 0 if too little is known
	Alike   bool          // its peers have as many GPUs and as much weight
	Own     time.Duration // its time of a token
	Peers   time.Duration // theirs
}

// The works that have a pace for each backend.
const (
	WorkPrefill  = iota // a prefill leg, with the tokens ahead of its own
	WorkStep            // the tokens of an answer after the first
	WorkTransfer        // until the first event of a decode leg that pulled its blocks
	worksPaced
)

func workName(w int) string { return [worksPaced]string{"prefill", "decode", "transfer"}[w] }

// A leg takes some time however few tokens it has. It counts for so many tokens more, so that engines with prompts of other
// lengths compare. Only what is many times slower is slow, so this need not be exact.
const (
	fixedPrefill  = 512
	fixedTransfer = 4096
	// shortTransfer is the time of a transfer below which it is no reason to call an engine slow: the scheduler of a host and
	// the step that runs are most of it.
	shortTransfer = 50 * time.Millisecond
)

// Paced notes that b took so long for a work of so many tokens.
func Paced(b *Backend, work, tokens int, took time.Duration) {
	fixed := [worksPaced]int{WorkPrefill: fixedPrefill, WorkTransfer: fixedTransfer}[work]
	if work == WorkTransfer {
		took = max(took, shortTransfer)
	}
	b.Trouble.paces[work].Add(tokens, fixed, took, b.router.now())
}

// Speeds compares the backends of the role that are up.
func Speeds(s *Snapshot, role Role) (all []Speed) {
	now, members := s.router.now(), s.Members(role)
	works := map[Role][]int{Prefill: {WorkPrefill}, Decode: {WorkStep, WorkTransfer}}[role]
	paces := make([][worksPaced]paced, len(members))
	for i, m := range members {
		for _, w := range works {
			paces[i][w].each, paces[i][w].token = m.Trouble.paces[w].Of(now)
		}
	}
	for i, m := range members {
		if m.State() != Up {
			continue
		}
		speed := Speed{Backend: m.Backend, Alike: true}
		peers := peersOf(members, i)
		for _, o := range peers {
			speed.Alike = speed.Alike && members[o].Entry.Weight == m.Entry.Weight && members[o].Entry.GPUs == m.Entry.GPUs
		}
		for _, w := range works {
			if ratio := besidePeers(paces, peers, i, w); ratio > 0 && (speed.Ratio == 0 || ratio < speed.Ratio) {
				own := paces[i][w].token
				speed.Work, speed.Ratio, speed.Own, speed.Peers = workName(w), ratio, own, time.Duration(float64(own)*ratio)
			}
		}
		all = append(all, speed)
	}
	return all
}

type paced struct {
	each  float64       // seconds of a token, with those that a leg counts for; 0: not known
	token time.Duration // of the tokens alone, for reports
}

// peersOf lists the peers of the i-th member.
func peersOf(members []Member, i int) (peers []int) {
	b := members[i].Backend
	for o, m := range members {
		if o != i && m.State() == Up && m.Version() == b.Version() && m.Connector == b.Connector && b.sharesModel(m.Backend) {
			peers = append(peers, o)
		}
	}
	return peers
}

// besidePeers is the speed of the i-th member as a part of the median of its peers, or 0.
func besidePeers(paces [][worksPaced]paced, peers []int, i, work int) float64 {
	own := paces[i][work].each
	var theirs []float64
	for _, o := range peers {
		if r := paces[o][work].each; r > 0 {
			theirs = append(theirs, r)
		}
	}
	if own == 0 || len(theirs) == 0 {
		return 0
	}
	slices.Sort(theirs)
	return theirs[(len(theirs)-1)/2] / own
}
