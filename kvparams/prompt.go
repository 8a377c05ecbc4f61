package kvparams

import "math"

// readPrompts counts prompts and token ids. [1,2,3] is one tokenised prompt, ["a"] and [[1,2]] are
// one prompt, ["a","b"] and [[1],[2]] are two. In a mixture each element counts, so it is never
// taken for one prompt.
func (r *Request) readPrompts(w *walk) (end int, err error) {
	numbers, ids, exact := 0, 0, true
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		switch c := r.s.byteAt(in.at); {
		case c == '-' || c-'0' <= 9:
			numbers++
			in.done(r.s.number(in.at))
		case c == '[':
			n, end := r.countTokens(in.at, in.depth)
			ids += n
			exact = exact && n >= 0
			in.done(end)
		default:
			exact = false
			in.done(r.s.value(in.at, in.depth))
		}
	}
	switch {
	case numbers == in.n:
		r.tokens = numbers
	case numbers == 0 && exact:
		r.prompts, r.tokens = max(in.n, 1), ids
	default:
		r.prompts = max(in.n, 1)
	}
	return in.pos, nil
}

// countTokens counts the elements of a list of numbers. n is -1 if it holds anything else.
func (r *Request) countTokens(at, depth int) (n, end int) {
	in := r.s.enter(at, depth)
	for in.next(&r.s) {
		c := r.s.byteAt(in.at)
		if c != '-' && c-'0' > 9 {
			n = math.MinInt32
		}
		n++
		in.done(r.s.value(in.at, in.depth))
	}
	if n < 0 {
		n = -1
	}
	return n, in.pos
}

// readEmbeds counts the elements of prompt_embeds.
func (r *Request) readEmbeds(w *walk) (end int, err error) {
	in := r.s.enter(w.at, w.depth)
	for in.next(&r.s) {
		in.done(r.s.value(in.at, in.depth))
	}
	r.embeds = in.n
	return in.pos, nil
}
