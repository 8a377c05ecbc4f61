// Command xpyd is a proxy for prefill/decode disaggregation: it stands in front of
// stock vLLM servers, sends each completion to a prefill and then to a decode
// backend, and streams the answer back.
package main

import (
	"os"

	"xpyd/cmd"
)

func main() { os.Exit(cmd.Run(os.Args[1:])) }
