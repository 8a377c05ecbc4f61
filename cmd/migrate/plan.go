package migrate

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// plan is the configuration as it grows.
type plan struct {
	settings []setting
	notes    []string
	// about begins the configuration, where it depends on the flags.
	about string
}

// setting is a key with its value as YAML. from says which flags it comes from. No comment shows the
// value of a flag, because it may be a password.
type setting struct{ key, value, from string }

// set replaces what an earlier call has set.
func (p *plan) set(key, value, from string) {
	p.settings = slices.DeleteFunc(p.settings, func(s setting) bool { return s.key == key })
	p.settings = append(p.settings, setting{key, value, from})
}

// note says what becomes of a flag that has no equivalent.
func (p *plan) note(flag, why string) { p.notes = append(p.notes, "--"+flag+": "+why) }

// names reports whether a comment names the flag.
func (p *plan) names(flag string) bool {
	for _, s := range p.settings {
		words := strings.FieldsFunc(s.from, func(r rune) bool { return strings.ContainsRune(" ,.=", r) })
		if slices.Contains(words, "--"+flag) {
			return true
		}
	}
	return slices.ContainsFunc(p.notes, func(note string) bool { return strings.HasPrefix(note, "--"+flag+": ") })
}

// list returns the texts as a YAML list.
func list(texts []string) string {
	var quoted []string
	for _, t := range texts {
		quoted = append(quoted, strconv.Quote(t))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// listen sets the address of the data port.
func (p *plan) listen(g given, host, port string) {
	p.set("listen", address(g.word("host", host), g.word("port", port)), g.from("host", "port"))
}

// admin puts the admin port on loopback, at the port of the router's metrics. It shows more than
// metrics, so it would need a token if other machines could reach it.
func (p *plan) admin(g given, hostFlag, portFlag, port string) {
	p.set("admin", address("127.0.0.1", g.word(portFlag, port)), g.from(portFlag))
	if g.has(hostFlag) {
		p.note(hostFlag, "the admin port shows more than metrics; to open it to others, give admin another host and set admin_token_file")
	}
}

// pem sets a certificate and its key, which are in dir under the names that Kubernetes gives them.
func (p *plan) pem(section, dir, from string) {
	p.set(section+".cert", strconv.Quote(filepath.Join(dir, "tls.crt")), from)
	p.set(section+".key", strconv.Quote(filepath.Join(dir, "tls.key")), from)
}

func address(host, port string) string {
	return strconv.Quote(net.JoinHostPort(strings.Trim(host, "[]"), port)) // an IPv6 address may come in brackets
}

// yaml writes the settings, those without a section first, and the notes.
func (p *plan) yaml(r router) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Made from the command line of %s.\n", r.name)
	for _, about := range []string{r.about, p.about} {
		if about != "" {
			fmt.Fprintf(&b, "# %s\n", about)
		}
	}
	sections := []string{""}
	for _, s := range p.settings {
		if section, _ := cut(s.key); !slices.Contains(sections, section) {
			sections = append(sections, section)
		}
	}
	for _, section := range sections {
		p.writeSection(&b, section)
	}
	if len(p.notes) > 0 {
		b.WriteString("\n# These flags have no equivalent:\n")
	}
	for _, n := range p.notes {
		fmt.Fprintf(&b, "#   %s\n", n)
	}
	return b.Bytes()
}

func (p *plan) writeSection(b *bytes.Buffer, section string) {
	indent := ""
	if section != "" {
		indent = "  "
		fmt.Fprintf(b, "%s:\n", section)
	}
	for _, s := range p.settings {
		if in, name := cut(s.key); in == section {
			fmt.Fprintf(b, "%s%s: %s  # %s\n", indent, name, s.value, s.from)
		}
	}
}

// cut splits timeouts.request into its section and the name in it.
func cut(key string) (section, name string) {
	section, name, nested := strings.Cut(key, ".")
	if !nested {
		return "", key
	}
	return section, name
}
