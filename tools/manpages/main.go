// Command manpages writes a man page for each command of xpyd into a directory, and xpyd.yaml(5) out of a file with all
// defaults. The packages contain them, and xpyd itself links nothing for them.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"xpyd/cmd"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: manpages DEFAULT_YAML DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages: "+err.Error())
		os.Exit(1)
	}
}

func write(defaults, dir string) error {
	root := cmd.Root()
	root.DisableAutoGenTag = true // a date would make each build another one
	root.InitDefaultCompletionCmd()
	header := &doc.GenManHeader{Title: "XPYD", Section: "1", Source: "xpyd", Manual: "Commands of xpyd"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	if err := complete(dir); err != nil {
		return fmt.Errorf("complete xpyd(1): %w", err)
	}
	if err := manual(defaults, dir); err != nil {
		return fmt.Errorf("write xpyd.yaml(5): %w", err)
	}
	return nil
}
