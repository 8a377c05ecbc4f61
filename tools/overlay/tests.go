package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// Bench is the module whose tests are built and run one by one, a folder for what is built, and places to run it.
type Bench struct {
	Root, Dir string
	Index     *Index
	Places    *Places
}

// NewBench reads the module in whose root the program runs. The folder has its name in it.
func NewBench(program string) (*Bench, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the module's root: %w", err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return nil, fmt.Errorf("want to run in the module's root: %w", err)
	}
	index, err := Read(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", program)
	if err != nil {
		return nil, fmt.Errorf("make a place for builds: %w", err)
	}
	return &Bench{Root: root, Dir: dir, Index: index, Places: NewPlaces()}, nil
}

// Close removes the folder.
func (b *Bench) Close() { _ = os.RemoveAll(b.Dir) }

// Build compiles the tests of the package in a directory, with flags of go test.
func (b *Bench) Build(ctx context.Context, binary, dir string, flags ...string) error {
	build := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c"}, flags...), "-o", binary, "./"+dir)...)
	build.Dir = b.Root
	if output, _, err := b.Places.Run(ctx, build); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", dir, err, output)
	}
	return nil
}

// Pattern is the -test.run that picks one test with its subtests.
func Pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}
