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
)

// Change finds the Go text from in the declaration in, by its tokens alone: spaces, lines
// and comments may differ. It must stand there once, over all declarations of that name.
// Change returns the file, relative to the root, and its text with to in that place.
func (x *Index) Change(in, from, to string) (file string, changed []byte, err error) {
	want, err := tokens([]byte(from))
	if err != nil || len(want) == 0 {
		return "", nil, fmt.Errorf("%q is no Go text: %w", from, err)
	}
	var found []place
	for _, p := range x.places[in] {
		hits, err := x.hits(p, want)
		if err != nil {
			return "", nil, err
		}
		found = append(found, hits...)
	}
	switch {
	case len(x.places[in]) == 0:
		return "", nil, fmt.Errorf("%s is not declared any more", in)
	case len(found) != 1:
		return "", nil, fmt.Errorf("%s (%s) has the text %d times, want once: %s", in, x.files(in), len(found), from)
	}
	hit := found[0]
	source, err := os.ReadFile(filepath.Join(x.root, hit.file))
	if err != nil {
		return "", nil, err
	}
	return hit.file, slices.Concat(source[:hit.begin], []byte(to), source[hit.end:]), nil
}

// hits are where the tokens want stand in p.
func (x *Index) hits(p place, want []word) (all []place, err error) {
	source, err := os.ReadFile(filepath.Join(x.root, p.file))
	if err != nil {
		return nil, err
	}
	have, err := tokens(source[p.begin:p.end])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p.file, err)
	}
	for i := range len(have) - len(want) + 1 {
		same := slices.EqualFunc(have[i:i+len(want)], want, func(a, b word) bool { return a.tok == b.tok && a.text == b.text })
		if same {
			all = append(all, place{p.file, p.begin + have[i].begin, p.begin + have[i+len(want)-1].end})
		}
	}
	return all, nil
}

// files are those that have a declaration of the name.
func (x *Index) files(in string) string {
	var all []string
	for _, p := range x.places[in] {
		all = append(all, p.file)
	}
	return strings.Join(all, ", ")
}

// word is a token and where it stands.
type word struct {
	tok        token.Token
	text       string
	begin, end int
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
