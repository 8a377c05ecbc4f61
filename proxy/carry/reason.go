package carry

import "xpyd/kvparams"

// Reason says why a stream whose decode engine has failed was not carried on by another one.
type Reason uint8

// The closed set of reasons: those of a request alone, and then those of its stream and of the moment.
const (
	None       Reason = iota
	Refused    Reason = iota + Reason(kvparams.Uncarrieds) - 1 // by the client
	Concurrent                                                 // both legs begin at once, or the engines are not vLLM
	Size                                                       // its ids are more than carry.stream
	Memory                                                     // carry.memory is spent
	Reasoning                                                  // the answer has more than text so far
	Shape                                                      // the engine tells no ids, or in a form that xpyd does not know
	Length                                                     // the length of the model is not known, and the request sets none to its answer
	Fault                                                      // it is not the engine that failed
	Spent                                                      // it was carried carry.max times
	Retries                                                    // the retry budget, or engines that may have died of the request
	Round                                                      // the new round has failed too
	Diverged                                                   // the new engine has made another text
	Reasons
)

// String is the name of the reason in metrics and logs.
func (r Reason) String() string {
	if r < Refused {
		return kvparams.Uncarried(r).String()
	}
	return [...]string{
		"client", "connector", "size", "memory", "reasoning", "shape", "length", "fault", "spent", "retries", "round", "diverged",
	}[r-Refused]
}

// Of is the reason of a request.
func Of(u kvparams.Uncarried) Reason { return Reason(u) }
