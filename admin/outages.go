package admin

import (
	"fmt"
	"strings"

	"xpyd/router"
)

// outage is why backends of a role get no requests, or fewer.
type outage struct{ kind, role, is, reason string }

// outageOf returns the outage of a backend. ok is false if there is none.
func outageOf(b *backendEntry) (o outage, ok bool) {
	o = outage{kind: noticeWarn, role: b.Role, reason: b.Reason}
	switch {
	case b.AdminState != router.Ready:
		if b.By != "" {
			o.reason += " (" + b.By + ")"
		}
		o.is = "gets no requests"
	case b.State == router.Down.String():
		o.kind, o.is = noticeBad, "is down"
	case b.Wedged != nil:
		o.kind, o.is = noticeBad, "hangs and gets no requests"
	case b.EjectedFor > 0:
		o.is = "gets no requests for now, as it is ejected"
	case b.Slow != nil: // without figures, as the text stays while it holds
		o.is, o.reason = "is slow, and gets as much work as its speed allows", "its "+b.Slow.Work+" takes several times as long as that of its peers"
		return o, true
	}
	if b.BothRoles && b.EjectedFor == 0 { // what is true of an engine in both roles is told once
		o.role = router.Both.String()
		return o, o.is != "" && b.Role == router.Decode.String()
	}
	return o, o.is != ""
}

// namedOf is how many backends of one outage are named.
const namedOf = 3

// outages says which backends get no requests, or fewer, in one notice for all of a role that share the reason.
func outages(all []backendEntry) (notices []notice) {
	var order []outage
	of, pool := map[outage][]*backendEntry{}, map[string]int{}
	for i := range all {
		b := &all[i]
		pool[b.Role]++
		if b.BothRoles && b.Role == router.Decode.String() {
			pool[router.Both.String()]++
		}
		if o, ok := outageOf(b); ok {
			if of[o] == nil {
				order = append(order, o)
			}
			of[o] = append(of[o], b)
		}
	}
	for _, o := range order {
		first := of[o][0]
		if len(of[o]) <= namedOf {
			for _, b := range of[o] {
				notices = append(notices, notice{o.kind, fmt.Sprintf("%s %s %s%s: %s", strings.Replace(o.role, router.Both.String(), "engine", 1), b.URL, o.is, since(b.Since), o.reason)})
			}
			continue
		}
		var names []string
		for _, b := range of[o] {
			if b.Since < first.Since {
				first = b
			}
			if len(names) < namedOf {
				names = append(names, b.URL)
			}
		}
		are := strings.NewReplacer("is down", "are down", "is slow", "are slow", "gets", "get", "it is", "they are").Replace(o.is)
		notices = append(notices, notice{o.kind, fmt.Sprintf("%s: %d of %d %s%s: %s (%s and %d more)",
			strings.Replace(o.role, router.Both.String(), "engines without a role", 1), len(of[o]), pool[o.role], are, since(first.Since), o.reason, strings.Join(names, ", "), len(of[o])-len(names))})
	}
	return notices
}
