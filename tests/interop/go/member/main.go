// A member of a consumer group, by one of the Go clients (../../README.md, "Consumer groups", has the contract):
//
//	go-member franz-go|sarama OPTIONS
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// options are those of the contract.
type options struct {
	Bootstrap   string   `json:"bootstrap"`
	Group       string   `json:"group"`
	Member      string   `json:"member"`
	Instance    string   `json:"instance"`
	Assignor    string   `json:"assignor"`
	Topics      []string `json:"topics"`
	Pattern     string   `json:"pattern"`
	SessionMs   int64    `json:"session_ms"`
	HeartbeatMs int64    `json:"heartbeat_ms"`
	RebalanceMs int64    `json:"rebalance_ms"`
	MetadataMs  int64    `json:"metadata_ms"`
}

func ms(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// partition is told as ["topic", 0].
type partition struct {
	topic string
	index int32
}

func (p partition) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.index}) }

// offset is told as ["topic", 0, 17].
type offset struct {
	partition
	next int64
}

func (o offset) MarshalJSON() ([]byte, error) { return json.Marshal([]any{o.topic, o.index, o.next}) }

func partitionsOf(byTopic map[string][]int32) []partition {
	all := []partition{}
	for topic, indexes := range byTopic {
		for _, index := range indexes {
			all = append(all, partition{topic, index})
		}
	}
	return all
}

type event struct {
	Member     string       `json:"m"`
	Kind       string       `json:"ev"`
	Topic      string       `json:"t,omitempty"`
	Partition  *int32       `json:"p,omitempty"`
	Offset     *int64       `json:"o,omitempty"`
	Value      *string      `json:"v,omitempty"`
	Partitions *[]partition `json:"partitions,omitempty"`
	Offsets    []offset     `json:"offsets,omitempty"`
	Why        string       `json:"why,omitempty"`
}

// teller tells a line a write: lines of several members then stay whole in the pipe that they share.
type teller struct{ member string }

func (t teller) tell(e event) {
	e.Member = t.member
	line, err := json.Marshal(e)
	if err == nil {
		_, err = os.Stdout.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (t teller) record(topic string, partition int32, offset int64, value []byte) {
	text := string(value)
	t.tell(event{Kind: "record", Topic: topic, Partition: &partition, Offset: &offset, Value: &text})
}

// partitions tells of an assignment, which may be empty, or of its end.
func (t teller) partitions(kind string, byTopic map[string][]int32) {
	if all := partitionsOf(byTopic); len(all) > 0 || kind == "assigned" {
		t.tell(event{Kind: kind, Partitions: &all})
	}
}

// untilClose is done at the word to close, or at the end of the input: whoever started us is gone.
func untilClose() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	return ctx
}

func run(arguments []string) error {
	clients := map[string]func(context.Context, options, teller) error{"franz-go": franz, "sarama": runSarama}
	if len(arguments) != 3 || clients[arguments[1]] == nil {
		return fmt.Errorf("usage: go-member franz-go|sarama OPTIONS")
	}
	var o options
	if err := json.Unmarshal([]byte(arguments[2]), &o); err != nil {
		return err
	}
	t := teller{o.Member}
	if err := clients[arguments[1]](untilClose(), o, t); err != nil {
		t.tell(event{Kind: "failed", Why: err.Error()})
		return err
	}
	return nil
}

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
