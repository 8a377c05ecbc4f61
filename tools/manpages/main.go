// Command manpages writes a man page for each command of xpyd into a directory. The packages contain
// them, and xpyd itself links nothing for them.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"xpyd/cmd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages: "+err.Error())
		os.Exit(1)
	}
}

func write(dir string) error {
	root := cmd.Root()
	root.DisableAutoGenTag = true // a date would make each build another one
	root.InitDefaultCompletionCmd()
	header := &doc.GenManHeader{Title: "XPYD", Section: "1", Source: "xpyd", Manual: "Commands of xpyd"}
	if err := doc.GenManTree(root, header, dir); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	return nil
}
