package cmd

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"xpyd/cmd/config"
)

// version is set by the linker (-X xpyd/cmd.version=…): that of a release (v1.2.3), or what git calls the commit.
var version = ""

// release is what the next release will be called. Builds that are none say it, with their commit.
const release = "v0.2.0-dev"

// buildInfo says which build this is. It has "unknown" for what the build did not record.
type buildInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"` // of the commit, RFC 3339
	Go      string `json:"go"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: versionOf(version), Commit: "unknown", Date: "unknown", Go: runtime.Version()}
	if b.Version != version && version != "" {
		b.Commit = version // where the build has not recorded it, as in a work tree of git
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = s.Value
		case s.Key == "vcs.time":
			b.Date = s.Value
		}
	}
	return b
}

// versionOf names a build by what the linker was given: v1.2.3 and v1.2.3-4-gabc are versions, and abc is a commit.
func versionOf(stamp string) string {
	switch {
	case stamp == "":
		return release
	case strings.HasPrefix(stamp, "v") && len(stamp) > 1 && '0' <= stamp[1] && stamp[1] <= '9':
		return stamp
	}
	return release + "+" + stamp
}

func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the commit with its date, and the Go release",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := readBuildInfo()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "xpyd %s\ncommit %s\ndate   %s\ngo     %s\n", b.Version, b.Commit, b.Date, b.Go)
			return err
		},
	}
	cmd.SetFlagErrorFunc(config.FlagError)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}
