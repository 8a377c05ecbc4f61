package overlay

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Change finds the Go text from in the declaration in, by its tokens alone, so spaces, lines and
// comments may differ. It must occur once in all declarations of that name. Change returns the
// file, relative to the root, and its text with to in that place.
//
// Code may move. If no declaration has the name in, one with its last part will do, in any package
// and of any type. Names may have been exported, or hidden, since from was written. Names that to
// shares with from are written as they are found.
func (x *Index) Change(in, from, to string) (file string, changed []byte, err error) {
	at, err := x.find(in, from)
	if err != nil {
		return "", nil, err
	}
	source, err := os.ReadFile(filepath.Join(x.root, at.file))
	if err != nil {
		return "", nil, err
	}
	return at.file, slices.Concat(source[:at.begin], respell([]byte(to), at.names), source[at.end:]), nil
}

// find returns the only place of the text from in the declaration in.
func (x *Index) find(in, from string) (hit, error) {
	want, err := tokens([]byte(from))
	if err != nil || len(want) == 0 {
		return hit{}, fmt.Errorf("%q is no Go text: %w", from, err)
	}
	declared := x.declared(in)
	var found []hit
	for _, p := range declared {
		hits, err := x.hits(p, want)
		if err != nil {
			return hit{}, err
		}
		found = append(found, hits...)
	}
	switch {
	case len(declared) == 0:
		return hit{}, fmt.Errorf("%s is not declared any more", in)
	case len(found) != 1:
		return hit{}, fmt.Errorf("%s (%s) has the text %d times, want once: %s", in, files(declared), len(found), from)
	}
	return found[0], nil
}

// declared are the declarations of a name, or otherwise those of its last part.
func (x *Index) declared(in string) []place {
	if exact := x.places[in]; len(exact) > 0 {
		return exact
	}
	return x.called[called(in)]
}

// called is the last part of a declaration's name, as if it were exported.
func called(name string) string {
	return exported(name[strings.LastIndexByte(name, '.')+1:])
}

// hit is a place where a text occurs.
type hit struct {
	place
	whole place             // the declaration around it
	names map[string]string // as they are spelled there, by how the text spells them
}

// hits are the places in p where the tokens want occur.
func (x *Index) hits(p place, want []word) (all []hit, err error) {
	source, err := os.ReadFile(filepath.Join(x.root, p.file))
	if err != nil {
		return nil, err
	}
	have, err := tokens(source[p.begin:p.end])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.file, err)
	}
	for i := range len(have) - len(want) + 1 {
		part := have[i : i+len(want)]
		if !slices.EqualFunc(part, want, word.is) {
			continue
		}
		names := map[string]string{}
		for n, w := range want {
			names[w.text] = part[n].text
		}
		all = append(all, hit{place{p.file, p.begin + part[0].begin, p.begin + part[len(part)-1].end}, p, names})
	}
	return all, nil
}

// respell writes the names of a text as they are spelled elsewhere.
func respell(text []byte, names map[string]string) []byte {
	words, _ := tokens(text) // the compiler reports what is not Go
	for _, w := range slices.Backward(words) {
		if name := names[w.text]; w.tok == token.IDENT && name != "" {
			text = slices.Concat(text[:w.begin], []byte(name), text[w.end:])
		}
	}
	return text
}

// files are those of the declarations.
func files(declared []place) string {
	var all []string
	for _, p := range declared {
		all = append(all, p.file)
	}
	return strings.Join(all, ", ")
}

// word is a token and its place.
type word struct {
	tok        token.Token
	text       string
	begin, end int
}

// is reports that two words are the same, except that a name may be exported in one of them.
func (w word) is(other word) bool {
	if w.tok == token.IDENT && other.tok == token.IDENT {
		return exported(w.text) == exported(other.text)
	}
	return w.tok == other.tok && w.text == other.text
}

// exported is a name with a capital in front.
func exported(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(first)) + name[size:]
}

// tokens are those of a part of a Go file, without comments. A line's end that ends a
// statement is a semicolon, but not at the end of the part.
func tokens(text []byte) ([]word, error) {
	var wrong error
	var s scanner.Scanner
	set := token.NewFileSet()
	f := set.AddFile("", -1, len(text))
	s.Init(f, text, func(_ token.Position, msg string) { wrong = errors.Join(wrong, errors.New(msg)) }, 0)
	var all []word
	ended := false // by a line's end
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		begin := f.Offset(pos)
		ended = tok == token.SEMICOLON && lit == "\n"
		w := word{tok: tok, text: lit, begin: begin, end: begin + len(lit)}
		switch {
		case tok == token.SEMICOLON:
			w.text, w.end = "", begin+1 // written, or a line's end
		case lit == "":
			w.end = begin + len(tok.String())
		}
		all = append(all, w)
	}
	if ended {
		all = all[:len(all)-1]
	}
	return all, wrong
}
