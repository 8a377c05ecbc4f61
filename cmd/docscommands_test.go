package cmd

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each command of xpyd that the documents tell people to run is one that xpyd takes: its command and flags exist, and the flags'
// values are of their kind. What is meant to be replaced may stand for any value, as in URL, DIR or ….
func TestDocsCommands(t *testing.T) {
	for _, wrong := range []string{"serve --no-such-flag", "check --probe=7 --prefill http://a:1", "no-such-command"} {
		if takes(wrong) == nil {
			t.Fatalf("%q is not refused", wrong)
		}
	}
	count := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/guides/*.md", "docs/results/*.md"} {
		pages, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range pages {
			page = strings.TrimPrefix(page, "../")
			if page == "CHANGELOG.md" {
				continue // tells of what was, too
			}
			for _, line := range commandsOf(readText(t, page)) {
				count++
				if err := takes(line); err != nil {
					t.Errorf("%s: xpyd does not take %q: %v", page, line, err)
				}
			}
		}
	}
	if count < 100 {
		t.Errorf("%d commands were found", count)
	}
}

var (
	commandLine   = regexp.MustCompile(`(?m)^(?:\$ |    )?(?:sudo )?(?:env \S+ )?(?:\./)?xpyd ([a-z].*)$`)
	commandInline = regexp.MustCompile("`(?:\\./)?xpyd ([a-z][^`]*)`")
	afterCommand  = regexp.MustCompile(`\s(?:#|&|\||>|>>|2>).*$`)
)

// commandsOf returns what stands behind xpyd in blocks of code, where a backslash continues a line, and in the text.
func commandsOf(text string) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	blocks := ""
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			blocks += part
		}
	}
	for _, m := range commandLine.FindAllStringSubmatch(blocks+"\n"+indented(text), -1) {
		lines = append(lines, m[1])
	}
	for _, m := range commandInline.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.ReplaceAll(m[1], "\n", " "))
	}
	return lines
}

// indented returns the lines that are code because they are indented.
func indented(text string) string {
	return strings.Join(regexp.MustCompile(`(?m)^    (?:sudo )?(?:\./)?xpyd .*$`).FindAllString(text, -1), "\n")
}

// takes is nil if xpyd knows the command and the flags of the line.
func takes(line string) error {
	line, _, _ = strings.Cut(line+" ", " -- ") // what follows is another program's
	line = afterCommand.ReplaceAllString(line, "")
	line = strings.NewReplacer("…", "", "[", "", "]", "").Replace(line)
	var words []string
	for _, m := range regexp.MustCompile(`(?:[^\s"']|"[^"]*"|'[^']*')+`).FindAllString(line, -1) {
		words = append(words, strings.NewReplacer(`"`, "", "'", "").Replace(m))
	}
	found, rest, err := Root().Find(words)
	if err != nil {
		return err
	}
	for i, word := range rest {
		if strings.HasPrefix(word, "-") && i == len(rest)-1 {
			if f := found.Flag(strings.TrimLeft(word, "-")); f != nil && f.NoOptDefVal == "" {
				rest = append(rest, f.DefValue) // a flag that is only named
			}
		}
	}
	return found.ParseFlags(rest)
}
