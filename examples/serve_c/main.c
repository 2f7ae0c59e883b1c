// Serves a model of lodestar.export.save with TensorFlow's C API.
//
//   serve_c --model DIR --library _lodestar_ops.so
//       --input ids_values=1,2,3 --input ids_row_splits=0,2,3
//
// loads Lodestar's ops and the model, runs a signature once, and prints one
// line per output. The program does not depend on the ops: the library
// registers them, like any library of custom ops. Models of export.save_plain
// need no library, and neither does a program with linked ops, such as
// serve_c_linked.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/serve_c/error.h"
#include "examples/serve_c/library.h"
#include "examples/serve_c/signature.h"
#include "examples/serve_c/tensors.h"
#include "tensorflow/c/c_api.h"

static const char kUsage[] =
    "usage: serve_c --model DIR [--library SO] [--signature NAME]\n"
    "               [--refresh NAME] --input NAME=VALUES [--input ...]\n"
    "\n"
    "Runs a signature of a SavedModel once and prints its outputs.\n"
    "  --model DIR      folder written by lodestar.export\n"
    "  --library SO     Lodestar's ops: _lodestar_ops.so; not needed for a\n"
    "                   plain model, or if the ops are linked in\n"
    "  --signature NAME default: serving_default\n"
    "  --input NAME=VALUES\n"
    "                   comma-separated values of an input: ids=1,2,3;\n"
    "                   with the shape if the model does not fix it:\n"
    "                   ids=[2,2]1,2,3,4; escape a comma in a string: \\,\n"
    "  --refresh NAME   signature without inputs, such as refresh: for each\n"
    "                   line of the standard input, runs it and then the\n"
    "                   signature again\n"
    "Without --input, prints the inputs and outputs of a signature with "
    "inputs.\n";

typedef struct {
  const char* model;
  const char* library;  // NULL: none
  const char* signature;
  const char* refresh;  // NULL: none
  const char** inputs;  // NAME=VALUES
  size_t num_inputs;
} Options;

typedef struct {
  TF_Library* library;  // NULL: none
  TF_Graph* graph;
  TF_Session* session;
  Signature signature;
  Signature refresh;
} Model;

static bool parse_options(int argc, char** argv, Options* options,
                          TF_Status* status) {
  options->signature = "serving_default";
  options->inputs = calloc(argc, sizeof(*options->inputs));
  if (options->inputs == NULL) return fail(status, "out of memory");
  for (int i = 1; i < argc; i += 2) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (value == NULL) return fail(status, "%s has no value", argv[i]);
    if (strcmp(argv[i], "--model") == 0) {
      options->model = value;
    } else if (strcmp(argv[i], "--library") == 0) {
      options->library = value;
    } else if (strcmp(argv[i], "--signature") == 0) {
      options->signature = value;
    } else if (strcmp(argv[i], "--refresh") == 0) {
      options->refresh = value;
    } else if (strcmp(argv[i], "--input") == 0) {
      options->inputs[options->num_inputs++] = value;
    } else {
      return fail(status, "unknown option %s", argv[i]);
    }
  }
  if (options->model == NULL) return fail(status, "--model is missing");
  return true;
}

// Registers the ops, then loads variables and tables into a session.
static bool load(const Options* options, Model* model, TF_Status* status) {
  if (options->library != NULL) {
    model->library = load_ops(options->library, status);
    if (model->library == NULL) return false;
  }
  const char* tags[] = {"serve"};
  TF_SessionOptions* session_options = TF_NewSessionOptions();
  TF_Buffer* meta_graph = TF_NewBuffer();
  model->graph = TF_NewGraph();
  model->session =
      TF_LoadSessionFromSavedModel(session_options, NULL, options->model, tags,
                                   1, model->graph, meta_graph, status);
  if (is_ok(status)) {
    read_signature(meta_graph, options->signature, &model->signature, status);
  }
  if (is_ok(status) && options->refresh != NULL) {
    read_signature(meta_graph, options->refresh, &model->refresh, status);
  }
  TF_DeleteBuffer(meta_graph);
  TF_DeleteSessionOptions(session_options);
  return is_ok(status);
}

static void unload(Model* model) {
  TF_Status* status = TF_NewStatus();
  if (model->session != NULL) {
    TF_CloseSession(model->session, status);
    TF_DeleteSession(model->session, status);
  }
  TF_DeleteStatus(status);
  if (model->graph != NULL) TF_DeleteGraph(model->graph);
  // The ops stay registered.
  if (model->library != NULL) TF_DeleteLibraryHandle(model->library);
  free_signature(&model->signature);
  free_signature(&model->refresh);
}

// The output of a graph named operation:number.
static bool find_output(TF_Graph* graph, const Argument* argument,
                        TF_Output* output, TF_Status* status) {
  const char* colon = strrchr(argument->tensor, ':');
  const size_t length = colon == NULL ? strlen(argument->tensor)
                                      : (size_t)(colon - argument->tensor);
  char* operation = malloc(length + 1);
  if (operation == NULL) return fail(status, "out of memory");
  memcpy(operation, argument->tensor, length);
  operation[length] = '\0';
  output->oper = TF_GraphOperationByName(graph, operation);
  output->index = colon == NULL ? 0 : atoi(colon + 1);
  free(operation);
  if (output->oper != NULL) return true;
  return fail(status, "the tensor %s of `%s` is not in the model's graph",
              argument->tensor, argument->name);
}

// The VALUES of --input NAME=VALUES; NULL if the name is not given.
static const char* find_input(const Options* options, const char* name) {
  const size_t length = strlen(name);
  for (size_t i = 0; i < options->num_inputs; ++i) {
    if (strncmp(options->inputs[i], name, length) == 0 &&
        options->inputs[i][length] == '=') {
      return options->inputs[i] + length + 1;
    }
  }
  return NULL;
}

// Every --input must be in the signature, and must be given once.
static bool check_inputs(const Options* options, const Arguments* inputs,
                         TF_Status* status) {
  for (size_t i = 0; i < options->num_inputs; ++i) {
    const char* input = options->inputs[i];
    const size_t length = strcspn(input, "=");
    bool known = false;
    for (size_t a = 0; a < inputs->count && !known; ++a) {
      const char* name = inputs->items[a].name;
      known = strlen(name) == length && strncmp(name, input, length) == 0;
      if (known && find_input(options, name) != input + length + 1) {
        return fail(status, "`%s` is given twice or without values", name);
      }
    }
    if (!known) {
      return fail(status, "the signature has no input `%.*s`", (int)length,
                  input);
    }
  }
  return true;
}

static bool run(const Options* options, const Model* model,
                const Signature* signature, TF_Status* status) {
  const Arguments* inputs = &signature->inputs;
  const Arguments* outputs = &signature->outputs;
  if (!check_inputs(options, inputs, status)) return false;
  TF_Output* fed = calloc(inputs->count + 1, sizeof(*fed));
  TF_Output* fetched = calloc(outputs->count + 1, sizeof(*fetched));
  TF_Tensor** in = calloc(inputs->count + 1, sizeof(*in));
  TF_Tensor** out = calloc(outputs->count + 1, sizeof(*out));
  bool ok = fed != NULL && fetched != NULL && in != NULL && out != NULL;
  if (!ok) fail(status, "out of memory");
  for (size_t i = 0; ok && i < inputs->count; ++i) {
    const Argument* argument = &inputs->items[i];
    const char* values = find_input(options, argument->name);
    ok = values != NULL
             ? find_output(model->graph, argument, &fed[i], status)
             : fail(status, "--input %s=... is missing", argument->name);
    if (ok) in[i] = parse_tensor(argument, values, status);
    ok = ok && in[i] != NULL;
  }
  for (size_t i = 0; ok && i < outputs->count; ++i) {
    const Argument* argument = &outputs->items[i];
    ok = is_printable(argument->dtype) ||
         fail(status,
              "`%s` has values of TF_DataType %d, which this program "
              "cannot print",
              argument->name, (int)argument->dtype);
    ok = ok && find_output(model->graph, argument, &fetched[i], status);
  }
  if (ok) {
    TF_SessionRun(model->session, NULL, fed, in, (int)inputs->count, fetched,
                  out, (int)outputs->count, NULL, 0, NULL, status);
    ok = is_ok(status);
  }
  for (size_t i = 0; ok && i < outputs->count; ++i) {
    print_tensor(outputs->items[i].name, out[i], stdout);
  }
  for (size_t i = 0; out != NULL && i < outputs->count; ++i) {
    if (out[i] != NULL) TF_DeleteTensor(out[i]);
  }
  for (size_t i = 0; in != NULL && i < inputs->count; ++i) {
    free_parsed_tensor(in[i]);
  }
  free(out);
  free(in);
  free(fetched);
  free(fed);
  return ok;
}

// Reads up to the end of a line; returns false at the end of the file.
static bool skip_line(FILE* in) {
  int c = getc(in);
  while (c != '\n' && c != EOF) c = getc(in);
  return c != EOF;
}

// Runs the signature, and again after each refresh.
static bool serve(const Options* options, const Model* model,
                  TF_Status* status) {
  const Options no_inputs = {0};
  bool ok = run(options, model, &model->signature, status);
  if (options->refresh == NULL) return ok;
  fflush(stdout);
  while (ok && skip_line(stdin)) {
    ok = run(&no_inputs, model, &model->refresh, status) &&
         run(options, model, &model->signature, status);
    fflush(stdout);
  }
  return ok;
}

static void describe(const char* title, const Arguments* arguments) {
  for (size_t i = 0; i < arguments->count; ++i) {
    const Argument* argument = &arguments->items[i];
    printf("%s %s TF_DataType=%d [", title, argument->name,
           (int)argument->dtype);
    for (int axis = 0; axis < argument->rank; ++axis) {
      printf("%s%lld", axis == 0 ? "" : ",", (long long)argument->sizes[axis]);
    }
    printf("%s]\n", argument->rank < 0 ? "?" : "");
  }
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--help") == 0) {
    fputs(kUsage, stdout);
    return 0;
  }
  TF_Status* status = TF_NewStatus();
  Options options = {0};
  Model model = {0};
  int code = 2;
  if (parse_options(argc, argv, &options, status)) {
    code = 1;
    if (load(&options, &model, status)) {
      if (options.num_inputs == 0 && model.signature.inputs.count > 0) {
        describe("input", &model.signature.inputs);
        describe("output", &model.signature.outputs);
        code = 0;
      } else if (serve(&options, &model, status)) {
        code = 0;
      }
    }
  }
  if (code != 0) fprintf(stderr, "serve_c: %s\n", TF_Message(status));
  if (code == 2) fputs(kUsage, stderr);
  unload(&model);
  free(options.inputs);
  TF_DeleteStatus(status);
  return code;
}
