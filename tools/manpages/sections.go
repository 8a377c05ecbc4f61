package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// further is what xpyd(1) says beyond its commands. docs/operations.md says it at more length.
const further = `.SH SIGNALS
Of a running \fBxpyd serve\fP:
.TP
\fBHUP\fP
rereads the configuration. What is faulty changes nothing.
.TP
\fBUSR2\fP
starts a successor from the same path with the same arguments, and hands both ports over to it.
.TP
\fBTERM\fP, \fBINT\fP
drains: /readyz answers 503, the listener closes after timeouts.drain_delay, and running requests have timeouts.drain. A
second one ends streams with an error event and gives their KV blocks back, and a third one ends the process at once.
.SH FILES
.TP
\fI/etc/xpyd/config.yaml\fP
the configuration of the service, see \fBxpyd.yaml(5)\fP. An instance xpyd@NAME has \fI/etc/xpyd/NAME.yaml\fP.
.TP
\fI/etc/default/xpyd\fP, \fI/etc/default/xpyd-NAME\fP
variables of the service.
.TP
\fI/var/lib/xpyd\fP
the one directory that the service may write to, for state_file.
.TP
\fI/usr/share/doc/xpyd\fP
the documentation, with every key and its default in \fIdefault.yaml\fP.
.TP
\fI/usr/share/xpyd\fP
units for the engines, alerts for Prometheus, dashboards for Grafana.
.SH ENVIRONMENT
Each key has a variable: timeouts.drain is \fBXPYD_TIMEOUTS_DRAIN\fP. Flags win over variables, and variables over the file.
\fBOTEL_*\fP configure traces where the configuration does not.
.SH EXIT STATUS
.TP
\fB0\fP
success.
.TP
\fB1\fP
a failure: an engine that does not fit, a row of xpyd verify that is not ok, a process that was told twice to stop.
.TP
\fB2\fP
a wrong flag, key, URL or file. One line names it. systemd does not start the service again.
`

// complete adds the further sections to xpyd(1), before SEE ALSO.
func complete(dir string) error {
	path := filepath.Join(dir, "xpyd.1")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, after, ok := bytes.Cut(page, []byte(".SH SEE ALSO\n"))
	if !ok {
		return fmt.Errorf("%s has no SEE ALSO", path)
	}
	text := string(before) + further + ".SH SEE ALSO\n\\fBxpyd.yaml(5)\\fP, " + strings.TrimPrefix(string(after), ".PP\n")
	return os.WriteFile(path, []byte(text), 0o644)
}

// manual writes xpyd.yaml(5) out of configs/default.yaml, which has every key after a comment that explains it.
func manual(defaults, dir string) error {
	yaml, err := os.ReadFile(defaults)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(`.TH "XPYD.YAML" "5" "" "xpyd" "Configuration of xpyd"
.SH NAME
xpyd.yaml - the configuration of xpyd
.SH SYNOPSIS
\fI/etc/xpyd/config.yaml\fP
.SH DESCRIPTION
YAML, TOML or JSON, for \fBxpyd serve --config\fP. Two keys are usual, and all others have defaults:
.PP
.nf
prefill: ["http://10.0.0.1:8100"]
decode: ["http://10.0.0.2:8200"]
.fi
.PP
Durations have a unit (250ms, 1s, 5m). Sizes are bytes, or have KiB, MiB or GiB. An unknown key is an error.
\fBxpyd check --config FILE\fP says what is wrong with a file, and \fBxpyd ctl reload\fP applies it.
.SH KEYS
`)
	section, help := "", ""
	for line := range strings.Lines(string(yaml)) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		name, value, isKey := strings.Cut(text, ":")
		switch {
		case strings.HasPrefix(text, "# "):
			help = text[2:]
		case !isKey:
			help = ""
		case value == "":
			section = name + "."
		default:
			if !strings.HasPrefix(line, " ") {
				section = ""
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fP (%s)\n%s\n", roff(section+name), roff(strings.TrimSpace(value)), roff(help))
		}
	}
	b.WriteString(".SH SEE ALSO\n\\fBxpyd-serve(1)\\fP, \\fBxpyd-check(1)\\fP\n")
	return os.WriteFile(filepath.Join(dir, "xpyd.yaml.5"), []byte(b.String()), 0o644)
}

// roff escapes text for roff: backslashes, dashes that are to stay dashes, and what would be a request at the start of a line.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
