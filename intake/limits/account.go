package limits

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Account is the holder of a name, with what it has under way and what is left to it. It stays the
// same through reloads. A nil Account is that of clients where no keys are set, and has no limit. It is
// safe for concurrent use.
type Account struct {
	ID   int // above 0
	Name string

	terms    atomic.Pointer[Terms]
	mu       sync.Mutex
	inFlight int
	requests bucket
	tokens   bucket
}

// Label returns the name, or "" for a nil account.
func (a *Account) Label() string {
	if a == nil {
		return ""
	}
	return a.Name
}

// Number returns the ID, or 0 for a nil account.
func (a *Account) Number() int {
	if a == nil {
		return 0
	}
	return a.ID
}

// Allows reports whether the account may use the model. model is nil if the request names none.
func (a *Account) Allows(model []byte) bool { return a == nil || a.terms.Load().allows(model) }

// Priority reports whether requests of the account may name a priority.
func (a *Account) Priority() bool { return a == nil || a.terms.Load().Priority }

// Limit is a limit that a request has met.
type Limit uint8

// The limits.
const (
	InFlight Limit = iota
	Requests
	Tokens
	Models
	limits
)

// String names the limit as metrics do.
func (l Limit) String() string { return [limits]string{"in_flight", "requests", "tokens", "models"}[l] }

// Refusal says which limit a request has met, and when it is worth another try.
type Refusal struct {
	Limit Limit
	Wait  time.Duration // 0: when another request ends
}

// Use is one request of an account, from its head to its end. The zero value belongs to no account. It
// has one owner.
type Use struct {
	*Account
	counted bool // in inFlight
	charged int  // tokens
	metered bool // tokens were charged, if only 0
}

// Begin counts a request of a. It returns nil if the request may go on. End ends the count.
func (u *Use) Begin(a *Account, now time.Time) *Refusal {
	*u = Use{Account: a}
	if a == nil {
		return nil
	}
	t := a.terms.Load()
	if t.InFlight == 0 && t.RequestsPerMinute == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.InFlight > 0 && a.inFlight >= t.InFlight {
		return &Refusal{Limit: InFlight}
	}
	if t.RequestsPerMinute > 0 {
		a.requests.fill(t.RequestsPerMinute, now)
		if a.requests.left < 1 {
			return &Refusal{Limit: Requests, Wait: a.requests.wait(1, t.RequestsPerMinute)}
		}
		a.requests.left--
	}
	a.inFlight++
	u.counted = true
	return nil
}

// Charge takes the tokens of the prompt, which may be an estimate. A prompt beyond the whole limit needs
// all of it.
func (u *Use) Charge(tokens int, now time.Time) *Refusal {
	if u.Account == nil {
		return nil
	}
	a, t := u.Account, u.terms.Load()
	if t.TokensPerMinute == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens.fill(t.TokensPerMinute, now)
	if need := float64(min(tokens, t.TokensPerMinute)); a.tokens.left < need {
		return &Refusal{Limit: Tokens, Wait: a.tokens.wait(need, t.TokensPerMinute)}
	}
	a.tokens.left -= float64(tokens)
	u.charged, u.metered = tokens, true
	return nil
}

// End ends the request. spent is the tokens of its prompt and its answer together, which take the place
// of those that were charged. Later calls do nothing.
func (u *Use) End(spent int) {
	a := u.Account
	if !u.counted && !u.metered {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if u.counted {
		a.inFlight--
	}
	if u.metered {
		a.tokens.left += float64(u.charged - spent) // the next look takes off what is beyond the limit
	}
	*u = Use{Account: a}
}

// Headers tells the limits for a minute and what is left of them, in OpenAI's header fields.
func (u *Use) Headers(now time.Time, set func(name, value string)) {
	if u.Account == nil {
		return
	}
	a, t := u.Account, u.terms.Load()
	if t.RequestsPerMinute == 0 && t.TokensPerMinute == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range []struct {
		what  string
		limit int
		of    *bucket
	}{{"requests", t.RequestsPerMinute, &a.requests}, {"tokens", t.TokensPerMinute, &a.tokens}} {
		if l.limit == 0 {
			continue
		}
		l.of.fill(l.limit, now)
		set("x-ratelimit-limit-"+l.what, strconv.Itoa(l.limit))
		set("x-ratelimit-remaining-"+l.what, strconv.Itoa(max(0, int(l.of.left))))
		set("x-ratelimit-reset-"+l.what, l.of.wait(float64(l.limit), l.limit).Round(time.Millisecond).String())
	}
}
