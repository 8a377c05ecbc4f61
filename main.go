// Command xpyd is a proxy for prefill/decode disaggregation. It runs in front of stock vLLM servers,
// sends each completion first to a prefill backend and then to a decode backend, and streams the answer
// back.
package main

import (
	"os"

	"xpyd/cmd"
)

func main() { os.Exit(cmd.Run(os.Args[1:])) }
