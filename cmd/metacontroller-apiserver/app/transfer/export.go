/*
Copyright The Metacontroller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package transfer

import (
	"context"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/yaml"
)

// export prints all objects to out, and what is to be known of them to notes.
func export(ctx context.Context, config *rest.Config, out, notes io.Writer) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	var counts []string
	for _, k := range kinds() {
		n := 0
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(k.resource()).List(ctx, o)
		})
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			o, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("the list has a %T", item)
			}
			if o.GetDeletionTimestamp() != nil {
				fmt.Fprintf(notes, "%s is left out: it is being deleted\n", describe(k, o))
				return nil
			}
			n++
			return write(out, o)
		})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the cluster does not serve %s: neither a server nor CustomResourceDefinitions are there", k.resource().GroupResource())
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", k.plural, err)
		}
		counts = append(counts, fmt.Sprintf("%d %s", n, k.plural))
	}
	fmt.Fprintf(notes, "Exported %s.\n", strings.Join(counts, ", "))
	return nil
}

// write writes an object as a document of YAML.
func write(out io.Writer, o *unstructured.Unstructured) error {
	text, err := yaml.Marshal(clean(o).Object)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", o.GetName(), err)
	}
	_, err = fmt.Fprintf(out, "---\n%s", text)
	return err
}
