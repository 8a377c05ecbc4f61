package kvparams

// Figure is a number in the usage of an answer that xpyd replaces for the client.
type Figure struct {
	At, End int // its digits are before End
	Value   int
}

// shownWith returns what takes the place of which digits so that the client sees cached as its cached
// tokens, the last one first. D counts none for KV that it pulled.
func (u *usage) shownWith(cached int) (list [2]Figure, n int) {
	if cached < 0 || u.cachedAt.end == 0 {
		return list, 0
	}
	list[0], n = Figure{u.cachedAt.at, u.cachedAt.end, cached}, 1
	if u.apart && u.promptAt.end > 0 {
		list[1], n = Figure{u.promptAt.at, u.promptAt.end, max(0, u.prompt+u.cached-cached)}, 2
		if list[1].At > list[0].At {
			list[0], list[1] = list[1], list[0]
		}
	}
	return list, n
}

// Figures returns the figures of an event with one data line that must change so that the client sees
// cached as its cached tokens. They are offsets into the event, the last one first.
func (a API) Figures(ev []byte, cached int) (list [2]Figure, n int) {
	data, at, _ := dataOf(ev)
	if at < 0 {
		return list, 0
	}
	var u usage
	if a.typed() {
		var t typed
		if !t.parse(data) {
			return list, 0
		}
		u = t.usage
	} else {
		u = usageOf(data)
	}
	list, n = u.shownWith(cached)
	for i := range list[:n] {
		list[i].At += at
		list[i].End += at
	}
	return list, n
}
