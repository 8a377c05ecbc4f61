package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"xpyd/tools/overlay"
)

// share builds the tests of each package once, with all mutants in it that can be switched on when it
// runs. A build takes far longer than most tests. The mutants of a build that fails are built alone.
func (b *bench) share(ctx context.Context, list []mutant) error {
	b.shared = map[string]string{}
	switches := b.Index.NewSwitches()
	dirs := map[string][]mutant{}
	for _, m := range list {
		p, err := b.plant(m)
		if err != nil {
			continue // judge says so
		}
		ok, err := switches.Add(switchName(m.name), m.in, m.old, m.new)
		if err != nil {
			return err
		}
		if ok {
			dirs[p.tests] = append(dirs[p.tests], m)
		}
	}
	files, err := switches.Files()
	if err != nil {
		return err
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if len(dirs[dir]) == 1 {
			continue
		}
		if err := b.shareIn(ctx, dir, dirs[dir], files); err != nil {
			fmt.Fprintf(os.Stderr, "mutants: build those that %s finds one by one: %v\n", dir, err)
		}
	}
	return ctx.Err()
}

// shareIn builds the tests of a package for the mutants that they are to find.
func (b *bench) shareIn(ctx context.Context, dir string, list []mutant, files map[string][]byte) error {
	var named []string
	for _, m := range list {
		named = append(named, b.named(m, dir)...)
	}
	all, err := overlay.Only(filepath.Join(b.Root, dir), named...)
	if err != nil {
		return err
	}
	maps.Copy(all, files)
	binary, err := b.build(ctx, filepath.Join(b.Dir, "shared", dir), dir, all)
	if err != nil {
		return err
	}
	for _, m := range list {
		b.shared[m.name] = binary
	}
	return nil
}

// switchName is a mutant's name in letters and digits: each byte in base 16.
func switchName(name string) string { return fmt.Sprintf("%x", name) }
