"""Architectures, one a file, each readable alone from top to bottom: ``from minitorch_attn.models.gpt import GPT``.

    gpt          GPT                                 a decoder: what comes next
    llama        Llama                               the same, as recent models have it
    bert         BERT                                an encoder: what was hidden
    vit          ViT                                 an encoder of image patches
    transformer  Transformer                         encoder and decoder
    seq2seq      Seq2Seq                             recurrent encoder and decoder, with and without attention
    sequence     RecurrentModel, ConvolutionModel    what comes next, before attention

To stay readable alone they repeat a few lines, such as the attention of GPT, BERT and ViT, and never import each
other. What is no part of a model they share: `checks` of what they are given, and `beam` search.
"""
