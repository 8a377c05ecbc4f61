package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// CheckLogs is the row of Logs.
const CheckLogs = "logs"

// finishedLine is what NixlConnector of vLLM (nixl/pull_scheduler.py, request_finished) logs at DEBUG of each request that
// has ended: its id, its status and its kv_transfer_params. It is the line that llm-d's guide to P/D looks for.
var finishedLine = regexp.MustCompile(`request_finished\((\S+)\), request_status=(\S+), kv_transfer_params=(\{.*\})`)

var (
	pulledBlocks  = regexp.MustCompile(`'remote_block_ids': \[`)
	remoteRequest = regexp.MustCompile(`'remote_request_id': '([^']+)'`)
)

// logged are the requests that the logs of engines show, by the id that both legs have: all of it but vLLM's last suffix.
type logged struct {
	prefills, decodes map[string]string // the whole id on P; of D's request the id on P, or "" if an older release does not say it
	statuses          map[string]string // of the prefills
}

// Logs reads the logs of prefill and decode engines, in any order, and says whether each prefill that was to be handed over
// has a decode leg that was given its blocks.
func Logs(paths []string) (Row, error) {
	l := logged{map[string]string{}, map[string]string{}, map[string]string{}}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return Row{}, fmt.Errorf("read the log of an engine: %w", err)
		}
		err = l.read(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return Row{}, fmt.Errorf("read the log %s: %w", path, err)
		}
	}
	return l.judge(), nil
}

func (l *logged) read(r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if m := finishedLine.FindStringSubmatch(line); m != nil {
			l.add(m[1], m[2], m[3])
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *logged) add(id, status, params string) {
	both := id[:max(strings.LastIndexByte(id, '-'), 0)]
	switch {
	case strings.Contains(params, "'do_remote_decode': True"):
		l.prefills[both], l.statuses[both] = id, status
	case pulledBlocks.MatchString(params):
		l.decodes[both] = ""
		if m := remoteRequest.FindStringSubmatch(params); m != nil {
			l.decodes[both] = m[1]
		}
	}
}

func (l *logged) judge() Row {
	alone, wrong, example := "", "", ""
	missing := 0
	for both, id := range l.prefills {
		of, ok := l.decodes[both]
		switch {
		case l.statuses[both] != "FINISHED_LENGTH_CAPPED": // its one token ended the text, or its client left
		case !ok:
			missing++
			alone = max(alone, id)
		case of != "" && of != id:
			wrong = max(wrong, fmt.Sprintf("decode of %s was given the blocks of %s", id, of))
		default:
			example = max(example, id)
		}
	}
	row := Row{}
	switch n := len(l.prefills); {
	case n+len(l.decodes) == 0:
		row = open("no line has request_finished; start the engines with VLLM_LOGGING_LEVEL=DEBUG, and give the logs of both")
	case wrong != "":
		row = bad("%s", wrong)
	case n == 0:
		row = bad("%d decode legs have remote_block_ids, and no log has a prefill with do_remote_decode", len(l.decodes))
	case example == "":
		row = bad("%d prefills were to be handed over, and no decode leg of theirs has remote_block_ids", n)
	case missing > 0:
		row = open("%d of %d prefills have no decode leg with remote_block_ids, as %s: their clients may have left", missing, n, alone)
	default:
		row = good("%d prefills with do_remote_decode, each with a decode leg that was given its remote_block_ids, as %s", n, example)
	}
	row.Check = CheckLogs
	return row
}
