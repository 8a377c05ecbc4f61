package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// modelName is what the simulated engines serve.
const modelName = "sim"

// tokenizer makes the model of make e2e for its tokenizer, because no tool may need a hub. python
// is the Python of a tool, as all of them have what the script imports.
func (j *job) tokenizer(ctx context.Context, python string) (string, error) {
	script := filepath.Join("scripts", "real-vllm", "model.py")
	return j.install("model", []string{script}, "", func(dir string) error {
		return call(ctx, dir+".log", "", nil, python, script, dir)
	})
}

// vllmArgs keeps all defaults: 1,000 random prompts at once. It gives only the address and the
// names.
func vllmArgs(j *job, tokenizer string) ([]string, error) {
	args := []string{"bench", "serve", "--base-url", j.fleet.url, "--model", modelName, "--tokenizer", tokenizer,
		"--save-result", "--result-dir", j.dir, "--result-filename", "report.json"}
	if j.api == chat {
		args = append(args, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions")
	}
	return args, nil
}

func guidellmArgs(j *job, tokenizer string) ([]string, error) {
	format := "/v1/completions"
	if j.api == chat {
		format = "/v1/chat/completions"
	}
	return []string{"run", "--disable-progress",
		"--backend", fmt.Sprintf("kind=openai_http,target=%s,model=%s,request_format=%s,timeout_connect=60", j.fleet.url, modelName, format),
		"--profile", "kind=concurrent,streams=8", "--constraint", fmt.Sprintf("kind=max_requests,count=%d", toolRequests),
		"--tokenizer", "kind=huggingface_auto,model=" + tokenizer,
		"--data", "kind=synthetic_text,prompt_tokens=200,output_tokens=20",
		"--output", "kind=json,path=" + filepath.Join(j.dir, "report.json")}, nil
}

func aiperfArgs(j *job, tokenizer string) ([]string, error) {
	return []string{"profile", "--ui", "none", "--model", modelName, "--url", j.fleet.url,
		"--endpoint-type", j.api, "--streaming", "--tokenizer", tokenizer,
		"--concurrency", "8", "--request-count", strconv.Itoa(toolRequests),
		"--synthetic-input-tokens-mean", "200", "--output-tokens-mean", "20", "--artifact-dir", j.dir}, nil
}

// writeWordTokenizer makes a tokenizer of 256 words in dir. inference-perf gives up if a text that
// it drew has not exactly as many tokens as it wanted. If each word is a token, it has.
func writeWordTokenizer(dir string) error {
	vocabulary := map[string]int{"<unk>": 0}
	for i := range 256 {
		vocabulary[fmt.Sprintf("word%d", i)] = i + 1
	}
	files := map[string]any{
		"tokenizer.json": map[string]any{
			"version": "1.0", "added_tokens": []any{},
			"pre_tokenizer": map[string]string{"type": "WhitespaceSplit"},
			"model":         map[string]any{"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
		},
		"tokenizer_config.json": map[string]any{
			"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "model_max_length": 32768,
		},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a tokenizer: %w", err)
	}
	for name, content := range files {
		text, err := json.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("make a tokenizer: %w", err)
		}
	}
	return nil
}

// inferencePerfConfig is for fmt: API, model, URL, tokenizer, folder. Its load has a rate and a
// time: 20 a second for 5 s are toolRequests. It has random data for completions only.
const inferencePerfConfig = `api: {type: %s, streaming: true}
server: {type: vllm, model_name: %q, base_url: %q, ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: %q}
data:
  type: shared_prefix
  shared_prefix: {num_unique_system_prompts: 10, num_users_per_system_prompt: 10, system_prompt_len: 100, question_len: 100, output_len: 20}
load: {type: constant, stages: [{rate: 20, duration: 5}], num_workers: 1}
storage: {local_storage: {path: %q}}
`

func inferencePerfArgs(j *job, _ string) ([]string, error) {
	tokenizer := filepath.Join(j.dir, "words")
	if err := writeWordTokenizer(tokenizer); err != nil {
		return nil, err
	}
	api := "completion"
	if j.api == chat {
		api = "chat"
	}
	config := filepath.Join(j.dir, "config.yml")
	text := fmt.Appendf(nil, inferencePerfConfig, api, modelName, j.fleet.url, tokenizer, j.dir)
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, fmt.Errorf("write the configuration of inference-perf: %w", err)
	}
	return []string{"-c", config}, nil
}
